# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the decoders of page-cache listings, which come from guests.

``python -m nova_dedup_migrate.tests.fuzz_listing --rounds N`` feeds each
decoder N inputs, made of good ones by damaging them.  A decoder refuses an
input, or what it returns is within bounds; COMPACT frames are decoded a
second time, by numbers without a size instead of arrays, and have to be
equal.  testkit/fuzzing.py runs them.
"""

import struct
import sys

from nova_dedup_migrate.pagecache import compact
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat as form
from nova_dedup_migrate.pagecache import parser
from nova_dedup_migrate.tests.unit.pagecache import listings
from testkit import fuzzing

_GROUP = struct.Struct('<BBHIQ')
_WORDS = tuple(struct.pack('<Q', number) for number in (
    0, 1, 0x7f, 0x80, 4094, 4095, 4096, 65535, (1 << 31) - 1,
    (1 << 56) - 1, (1 << 63) - 4096, 1 << 63, (1 << 64) - 1))


def _given(chance, base, wild=False):
    """Return extents, ascending.

    :param wild: some are longer, or farther away, than the format allows
    """
    found, page, kinds = [], 0, chance.choice((1, 2))
    for _ in range(chance.choice((1, 2, 3, 8))):
        pages = chance.choice((1, 1, 2, 3, 4096))
        if page + pages > 65536:
            break
        offset = chance.randrange(1 << chance.choice((8, 28))) << 12
        if wild and chance.randrange(4) == 0:
            pages = chance.choice((4097, 4098, 1 << 14, 1 << 40))
        if wild and chance.randrange(4) == 0:
            offset = (1 << chance.choice((62, 63, 64, 66))) - 4096
        found.append((base + (page << 12), pages, offset,
                      chance.randrange(kinds), chance.randrange(kinds)))
        page += pages + chance.choice((0, 1, 5))
        page = min(page, 65535)
    return found


def _number(data, at):
    """Return (a varint, where the next byte is)."""
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return found, at


def reference(data):
    """Return the extents of a good COMPACT frame: (gpa, pages, place)."""
    base, = struct.unpack_from('<Q', data)
    at, found = 8, []
    while at < len(data):
        disk, kind, count, _zero, offset = _GROUP.unpack_from(data, at)
        at += _GROUP.size
        pages = struct.unpack_from('<%dH' % count, data, at)
        at += 2 * count
        steps = []
        for _ in range(count):
            step, at = _number(data, at)
            steps.append(step)
        for page, step in zip(pages, steps, strict=True):
            length = 1
            if step & 1:
                length, at = _number(data, at)
                length += 2
            offset += (step >> 1) * form.PAGE
            found.append((base + page * form.PAGE, length,
                          offset | kind << 6 | disk))
    return sorted(found)


def _wild(chance):
    while True:
        try:
            return listings.compact(*_given(chance, 1 << 32, wild=True))
        except struct.error:
            # its first offset has more than 64 bits
            continue


def frames(chance, rounds):
    """Fuzz COMPACT frames."""
    good = [listings.compact(*_given(chance, 1 << 32)) for _ in range(8)]
    for _ in range(rounds):
        if chance.randrange(2):
            data = fuzzing.damage(chance, chance.choice(good), _WORDS)
        else:
            data = _wild(chance)
        try:
            words = compact.decode(memoryview(data))
        except errors.ListingError:
            continue
        assert 0 < len(words) <= form.MAX_COMPACT_EXTENTS
        found = sorted((first & ~4095, (first & 4095) + 1, place)
                       for first, place in words.tolist())
        assert found == reference(data), data


def whole(chance, rounds):
    """Fuzz listings that have frames of all types."""
    sda = form.Disk(bus='scsi', size=1 << 50, scsi=(0, 1), name='sda')
    given = _given(chance, 1 << 32)
    good = [listings.listing(
        (form.BEGIN, listings.begin()), (form.DISK, listings.disk(0, sda)),
        (form.DISK, listings.disk(1, sda)), (kind, payload),
        (form.SKIPPED, listings.skipped('all of /mnt')),
        (form.END, listings.end(extents=len(given))))
        for kind, payload in ((form.COMPACT, listings.compact(*given)),
                              (form.EXTENTS, listings.extents(*given)))]
    for _ in range(rounds):
        data = fuzzing.damage(chance, chance.choice(good), _WORDS)
        made = parser.ListingParser()
        step = chance.choice((len(data) + 1, len(data) + 1, 64))
        try:
            for at in range(0, len(data), step):
                made.feed(data[at:at + step])
        except errors.ListingError:
            continue
        _check(made)


def _check(made):
    end = count = 0
    for some in made.chunks():
        for gpa, pages, offset, disk, kind in zip(
                some.gpa.tolist(), some.pages.tolist(),
                some.offset.tolist(), some.disk.tolist(),
                some.kind.tolist(), strict=True):
            assert gpa >= end and not gpa % 4096 and not offset % 512
            assert 1 <= pages <= 4096 and kind < len(form.KINDS)
            end = gpa + pages * 4096
            assert end < 1 << 63
            assert offset + pages * 4096 <= made.disks[disk].size
            count += 1
    assert count == made.extents


DECODERS = {'frames': frames, 'listings': whole}


if __name__ == '__main__':
    sys.exit(fuzzing.main('fuzz-listings', __doc__.split('\n')[0], DECODERS))
