# SPDX-License-Identifier: Apache-2.0
"""Fuzzes what reads outside input for disks that are built.

``python -m nova_dedup_migrate.tests.fuzz_storage --rounds N`` feeds each
parser N inputs, most of them good ones that were damaged.  Where a digest
protects an input it is often made anew, so that what is behind it is
reached.  A parser refuses an input with its own error, or what it returns
is what the format allows; each function compares with what it knows of the
input by simpler means.  testkit/fuzzing.py runs them.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import struct
import sys
import tempfile

import numpy

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import journal as journals
from nova_dedup_migrate.storage import manifest as manifests
from nova_dedup_migrate.storage.index import errors as index_errors
from nova_dedup_migrate.storage.index import segment
from nova_dedup_migrate.tests import fuzz_channel
from testkit import fuzzing

_LITTLE = tuple(struct.pack('<Q', number) for number in fuzz_channel.NUMBERS)
_DIGEST = blocks.DIGEST


@functools.cache
def _directory():
    """Return a directory for files, without a disk behind it if possible."""
    found = tempfile.mkdtemp(
        prefix='fuzz-storage-',
        dir='/dev/shm' if os.access('/dev/shm', os.W_OK) else None)
    atexit.register(shutil.rmtree, found, ignore_errors=True)
    return found


def _path(name):
    return os.path.join(_directory(), '%s-%d' % (name, os.getpid()))


@contextlib.contextmanager
def _file(path):
    """Yield what replaces the content of a file, which is removed."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)

    def put(content):
        os.ftruncate(fd, 0)
        os.pwrite(fd, content, 0)

    try:
        yield put
    finally:
        os.close(fd)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


# Manifests

def _manifest(chance, size):
    """Return a manifest as (header, records, end)."""
    writer = manifests.Writer(size)
    count, at, records = blocks.count(size), 0, []
    while at < count and len(records) < 5:
        step = min(count - at, chance.choice((1, 1, 2, 3, 40)))
        kind = chance.choice((manifests.DIGESTS, manifests.DIGESTS,
                              manifests.ZERO, manifests.ABSENT,
                              manifests.SKIPPED))
        digests = b''
        if kind == manifests.DIGESTS:
            step = min(step, 3)
            digests = chance.randbytes(_DIGEST * step)
        records.append(writer.record(manifests.Record(kind, at, step,
                                                      digests)))
        at += step + chance.choice((0, 0, 1, 7))
    chance.shuffle(records)
    return writer.header(), records, len(writer.end())


def manifest(chance, rounds):
    """Fuzz manifests."""
    size = chance.choice((1, 5, 64, 1000)) * blocks.BLOCK - chance.choice(
        (0, 512))
    expected = bitmap.Bitmap(blocks.count(size))
    expected.set(0, chance.randrange(1, expected.size + 1))
    allowed = expected.count()
    good = [_manifest(chance, size) for _ in range(8)]
    for _ in range(rounds):
        header, records, _ = chance.choice(good)
        body = b''.join(records)
        if chance.randrange(8):
            body = fuzzing.damage(chance, body, fuzz_channel.WORDS)
        else:
            header = fuzzing.damage(chance, header, fuzz_channel.WORDS)
        total = sum(struct.unpack_from('>I', one, 9)[0] for one in records)
        body += struct.pack('>BQI', manifests.END, total, 0)
        data = header + body
        data += hashlib.sha256(data).digest()
        if chance.randrange(4) == 0:
            data = fuzzing.damage(chance, data, fuzz_channel.WORDS)
        limited = chance.randrange(2)
        _parse(data, size, expected if limited else None,
               allowed if limited else expected.size)


def _parse(data, size, expected, allowed):
    """Parse a manifest, check each record, also of one that is refused.

    :param allowed: blocks from the first one on that may be in it
    """
    seen = 0
    with contextlib.suppress(errors.ManifestMalformed):
        for record in manifests.parse(fuzz_channel.reader(data), size,
                                      expected):
            assert 1 <= record.kind <= 4 and record.count > 0
            assert record.first + record.count <= allowed
            mask = ((1 << record.count) - 1) << record.first
            assert not seen & mask
            seen |= mask
            if record.kind == manifests.DIGESTS:
                assert len(record.digests) == record.count * _DIGEST
                assert record.digests in data
                for block in record.blocks(size):
                    assert 0 < block.length <= size - block.offset
            else:
                assert not record.digests
        assert data[:8] == b'NDMANIF1'


# Journals

_BLOCKS = 6
_SIZE = _BLOCKS * blocks.BLOCK - 512
_TARGET = (7, 9)
_HEADER = 104
_SLOTS = 4096


def journal(chance, rounds):
    """Fuzz journals, and those that are handed over."""
    path = _path('journal')
    watch = chance.randbytes(journals.WATCH)
    header = journals._header(_SIZE, _TARGET, watch)
    slots = chance.randbytes(_DIGEST * _BLOCKS)
    with _file(path) as put:
        for number in range(rounds):
            head, rest = header, slots
            if chance.randrange(4):
                head = fuzzing.damage(chance, head, fuzz_channel.WORDS)
                if chance.randrange(2):
                    # All is good but a field.
                    head = head[:_HEADER - _DIGEST]
                    head += hashlib.sha256(head).digest()
            if chance.randrange(4) == 0:
                rest = fuzzing.damage(chance, rest, fuzz_channel.WORDS)
            content = head[:_HEADER].ljust(_SLOTS, b'\0') + rest
            if chance.randrange(16) == 0:
                content = content[:chance.choice(
                    (0, 8, 72, _HEADER, _SLOTS, _SLOTS + 40))]
            elif chance.randrange(64) == 0:
                content = bytes(len(content))
            put(content)
            if number % 8:
                _open(path, watch, header, content)
            else:
                _hand_over(path, watch, header, content)


def _open(path, watch, header, content):
    """Open a journal and compare what it returns with its bytes."""
    good = content[:_HEADER] == header and (
        len(content) == _SLOTS + _BLOCKS * _DIGEST)
    try:
        found = journals.Journal(path, _SIZE, _TARGET, watch)
    except errors.JournalUnusable:
        assert not good
        return
    try:
        # An empty file, or one that was never begun, is made anew.
        assert good or not any(content[:_HEADER])
        there = dict(found.proven())
        wanted = content[_SLOTS:] if good else bytes(_BLOCKS * _DIGEST)
        for first, some in there.items():
            assert some == wanted[first * _DIGEST:][:len(some)]
        assert not any(wanted) or there
        assert b''.join(found.slots(0, _BLOCKS)) == wanted
    finally:
        found.close()


def _hand_over(path, watch, header, content):
    """Hand a journal over to a migration, as that of any target."""
    new = path + '-new'
    try:
        journals.hand_over(path, new, _SIZE, (1, 2), watch)
    except errors.JournalUnusable:
        assert content[:_HEADER] != header or (
            len(content) != _SLOTS + _BLOCKS * _DIGEST)
        assert not os.path.exists(new)
        return
    os.rename(new, path)
    found = journals.Journal(path, _SIZE, (1, 2), watch)
    try:
        if any(content[:_HEADER]):
            # Only another target than the one it had.
            assert content[:24] == header[:24]
            assert content[40:72] == header[40:72]
            assert b''.join(found.slots(0, _BLOCKS)) == content[_SLOTS:]
    finally:
        found.close()


# Segments of an index

_FILES = 5


def _segment(chance, path):
    """Return the bytes of a segment of a few digests of a few files."""
    count = chance.choice((0, 1, 3, 20))
    keys = numpy.array([chance.choice(_KEYS) for _ in range(count)],
                       segment.KEY)
    places = numpy.array(
        [chance.randrange(1, _FILES) << segment.BLOCK_BITS
         | chance.randrange(1 << 20) for _ in range(count)], segment.KEY)
    segment.write(path, keys, places)
    with open(path, 'rb') as file:
        return file.read()


#: Few, so that some are there more than once.
_KEYS = tuple(number * 0x0123456789abcdef % (1 << 64)
              for number in range(12)) + ((1 << 64) - 1,)


def segments(chance, rounds):
    """Fuzz segments, whose entries may be forged, and merge some."""
    path = _path('segment')
    good = [_segment(chance, path) for _ in range(8)]
    other = _path('other')
    wanted = numpy.unique(numpy.array(_KEYS, segment.KEY))
    flags = [chance.randrange(2) == 1 for _ in range(_FILES)]
    allowed = numpy.array(flags)
    with _file(path) as put:
        for number in range(rounds):
            data = chance.choice(good)
            if number % 4:
                # Neither longer nor shorter: the header would be refused.
                head, entries = data[:16], data[16:]
                data = head + fuzzing.damage(chance, entries, _LITTLE)[
                    :len(entries)].ljust(len(entries), b'\0')
                found = _Mapped(data)
            else:
                data = fuzzing.damage(chance, data, _LITTLE)
                put(data)
                try:
                    found = segment.Segment(path)
                except index_errors.IndexDamaged:
                    continue
            assert len(data) == 16 + 16 * found.entries
            places = numpy.zeros(len(wanted), segment.KEY)
            found.look_up(wanted, allowed, places)
            _check_places(data, wanted, places, flags)
            if number == 1 and chance.randrange(8) == 0:
                segment.merge(other, [found, found], allowed)
                merged = segment.Segment(other)
                assert merged.entries <= 2 * found.entries
                assert all(flags[place >> segment.BLOCK_BITS]
                           for place in merged.places.tolist())
    with contextlib.suppress(FileNotFoundError):
        os.unlink(other)


class _Mapped(segment.Segment):
    """A segment whose bytes are here: most time goes by with files."""

    def __init__(self, data):
        self.entries = (len(data) - 16) // 16
        self.keys, self.places = numpy.frombuffer(
            data, segment.KEY, offset=16).reshape(2, -1)


def _check_places(data, wanted, places, flags):
    """Each place is one that the file has for the key, and may be told."""
    count = (len(data) - 16) // 16
    numbers = struct.unpack_from('<%dQ' % (2 * count), data, 16)
    pairs = set(zip(numbers[:count], numbers[count:], strict=True))
    for key, place in zip(wanted.tolist(), places.tolist(), strict=True):
        if place != segment.NOWHERE:
            assert (key, place) in pairs
            assert flags[place >> segment.BLOCK_BITS]


PARSERS = {'manifest': manifest, 'journal': journal, 'segments': segments,
           **fuzz_channel.PARSERS}


if __name__ == '__main__':
    sys.exit(fuzzing.main('fuzz-storage', __doc__.split('\n')[0], PARSERS))
