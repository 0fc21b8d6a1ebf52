# SPDX-License-Identifier: Apache-2.0
import dataclasses
import random
import struct
import time

import numpy

from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat as form
from nova_dedup_migrate.pagecache import parser
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.pagecache import listings

GIB = listings.GIB
SDA = form.Disk(bus='scsi', size=2 * GIB, sector=4096, pci=((3, 0),),
                scsi=(0, 1), unit=2, read_only=True, name='sda',
                serial='0a1b', wwid='naa.5000')
#: Of these every number is known.
END = form.End('ended: time', 'files', 3, *range(1, 15))


def parse(data, step=None, **given):
    """Return a parser that was fed data, step bytes at a time."""
    made = parser.ListingParser(**given)
    for at in range(0, len(data), step or len(data) or 1):
        made.feed(data[at:at + (step or len(data))])
    return made


def extents_of(made):
    return [tuple(map(int, row)) for some in made.chunks()
            for row in zip(some.gpa, some.pages, some.offset, some.disk,
                           some.kind, strict=True)]


def rich(nonce=7):
    """Return (listing, its extents)."""
    first = [(0, 1, 512, 0, 1), (4096, 4096, GIB // 2, 1, 0)]
    second = [(1 << 40, 3, 2 * GIB - 3 * 4096, 1, 0)]
    return listings.listing(
        (form.BEGIN, listings.begin(nonce)),
        (form.DISK, listings.disk(0, listings.VDA)),
        (form.DISK, listings.disk(1, SDA)),
        (form.EXTENTS, listings.extents(*first)),
        (form.SKIPPED, listings.skipped('btrfs', 1, 77)),
        (form.EXTENTS, listings.extents(*second)),
        (form.SKIPPED, listings.skipped('nfs', 99)),
        (form.END, listings.end(END))), first + second


class GoodTest(base.TestCase):

    def test_all_of_it(self):
        data, extents = rich()
        for step in (None, 1, 7, 16, 100):
            made = parse(data, step, nonce=7)
            self.assertTrue(made.complete)
            self.assertEqual(4096, made.page_size)
            self.assertEqual([listings.VDA, SDA], made.disks)
            self.assertEqual(extents, extents_of(made))
            self.assertEqual((3, [4099, 1]), (made.extents, made.pages))
            self.assertEqual([form.Skipped(1, 77, 'btrfs'),
                              form.Skipped(99, None, 'nfs')], made.skipped)
            self.assertEqual(END, made.end)

    def test_broken_off(self):
        data, extents = rich()
        for size in range(len(data)):
            made = parse(data[:size], nonce=7)
            self.assertFalse(made.complete)
            self.assertEqual(extents[:made.extents], extents_of(made))

    def test_nothing_cached(self):
        made = parse(listings.small(given=()))
        self.assertTrue(made.complete)
        self.assertEqual(0, made.extents)

    def test_what_follows_the_end_is_not_looked_at(self):
        made = parse(listings.small() + b'anything')
        self.assertTrue(made.complete)
        made.feed(b'more')

    def test_nothing_is_known(self):
        made = parse(listings.listing(
            (form.BEGIN, listings.begin()),
            (form.END, listings.end(method='none', status='failed'))))
        self.assertEqual(form.End('failed'), made.end)

    def test_request(self):
        data = form.Request(5, 1000, 8192, 100).encode()
        self.assertEqual((form.REQUEST, 64, form.READS_COMPACT),
                         form.decode_header(data[:16]))
        self.assertEqual(struct.pack('<IIQII', 1, 1000, 5, 8192, 100)
                         + bytes(40), data[16:])


class RefusedTest(base.TestCase):

    def refused(self, what, data, **given):
        error = self.assertRaises(errors.ListingError, parse, data, **given)
        self.assertIn(what, str(error))

    def disk(self, what, given=listings.VDA, **wrong):
        self.refused(what, listings.listing(
            (form.BEGIN, listings.begin()),
            (form.DISK, listings.disk(0, given, **wrong))))

    def extents(self, what, *given, **limits):
        self.refused(what, listings.listing(
            (form.BEGIN, listings.begin()),
            (form.DISK, listings.disk(0, listings.VDA)),
            *((form.EXTENTS, listings.extents(*some)) for some in given)),
            **limits)

    def frames(self, what, *payloads):
        self.refused(what, listings.listing(
            (form.BEGIN, listings.begin()), *payloads))

    def test_headers(self):
        good = listings.begin()
        for what, data in (
                ('magic', listings.frame(1, 0, good, magic=b'NPCM')),
                ('header is not 0', listings.frame(1, 0, good, zero=1)),
                ('65537 bytes', listings.frame(1, 0, good, length=65537)),
                ('frame 1 instead', listings.frame(1, 1, good)),
                ('type 2', listings.frame(2, 0, good)),
                ('type 16', listings.frame(
                    16, 0, form.Request(1).encode()[16:])),
                ('BEGIN of 63', listings.frame(1, 0, good[:-1])),
                ('BEGIN of 0', listings.frame(1, 0, b''))):
            self.refused(what, data)
        self.frames('frame 1 of type 1', (form.BEGIN, good))
        self.frames('unknown type 7', (7, b''))
        self.frames('unknown type 16', (16, b''))

    def test_a_header_is_refused_before_its_payload(self):
        begin = listings.listing((form.BEGIN, listings.begin()))
        self.refused('more than 10 extents', begin + listings.frame(
            form.EXTENTS, 1, b'', length=11 * 16), max_extents=10)
        self.refused('EXTENTS of 17', begin + listings.frame(
            form.EXTENTS, 1, b'', length=17))

    def test_begin(self):
        for what, payload in (
                ('version 2', listings.begin(version=2)),
                ('page size of 8192', listings.begin(page_size=8192)),
                ('is not 0', listings.begin(zero=b'\1')),
                ('another request', listings.begin(nonce=1))):
            self.refused(what, listings.frame(1, 0, payload))
        self.refused('another request', listings.small(nonce=1), nonce=2)

    def test_disks(self):
        self.disk('disk 1 instead of disk 0', index=1)
        self.disk('bus 4', bus=4)
        self.disk('flags 0x8', flags=8)
        self.disk('size', size=1 << 63)
        for sector in (0, 511, 513, 1 << 17):
            self.disk('sectors of', sector=sector)
        self.disk('PCI path of 0', steps=0, path=b'')
        self.disk('PCI path of 9', steps=9)
        self.disk('is not 0', steps=1, path=b'\1\1')
        self.disk('is not 0', zero=1)
        self.disk('is not 0', zeros=b'\1')
        self.disk('is not 0', rest=bytes(31) + b'\1')
        self.disk('is not 0', channel=1)
        self.disk('is not 0', target=1)
        self.disk('is not 0', unit=1)
        bare = dataclasses.replace(listings.VDA, pci=None, pci_bus=0)
        for field in ('domain', 'root', 'steps', 'pci_bus'):
            self.disk('is not 0', bare, **{field: 1})
        self.disk('is not 0', bare, path=b'\1')
        self.disk('printable', name=b'v\x1b[2J')
        self.disk('printable', serial=b'\xc3\xbc')
        self.disk('is not 0', wwid=b'a\0b')

    def test_disks_without_end(self):
        many = [(form.DISK, listings.disk(number, listings.VDA))
                for number in range(65)]
        self.frames('more than 64 disks', *many)

    def test_extents(self):
        self.extents('EXTENTS of 0', [])
        self.extents('disk 1; only 1 ', [(0, 1, 0, 1)])
        self.extents('disk 63; only 1 ', [(0, 1, 0, 0), (4096, 1, 0, 63)])
        self.extents('unknown kind', [(0, 1, 0, 0, 2)])
        self.extents('unknown kind', [(0, 1, 0, 0, 3)])
        self.extents('unknown kind', [(0, 1, 256, 0)])
        self.extents('the largest address', [((1 << 63) - 4096, 1, 0, 0)])
        self.extents('the largest address', [((1 << 64) - 4096, 1, 0, 0)])
        self.extents('the largest address',
                     [((1 << 64) - 4096, 4096, 0, 0)])
        self.extents('end of its disk', [(0, 1, GIB - 4096 + 512, 0)])
        self.extents('end of its disk', [(0, 1, GIB, 0)])
        self.extents('end of its disk', [(0, 1, (1 << 64) - 512, 0)])
        self.extents('end of its disk', [(0, 2, GIB - 4096, 0)])

    def test_order(self):
        last = (4096, 2, 0, 0)
        for first in ((4096, 1, 0, 0), (8192, 1, 0, 0), (0, 2, 0, 0),
                      (1 << 30, 1, 0, 0)):
            self.extents('not in order', [first, last])
            self.extents('not in order', [first], [last])

    def test_as_many_as_asked_for(self):
        given = [(number * 4096, 1, 0, 0) for number in range(11)]
        made = parse(listings.small(given=given[:10]), max_extents=10)
        self.assertEqual(10, made.extents)
        self.extents('more than 10 extents', given[:8], given[8:],
                     max_extents=10)

    def test_no_disk_before_extents(self):
        self.frames('only 0 are listed',
                    (form.EXTENTS, listings.extents((0, 1, 0, 0))))

    def test_skipped(self):
        for what, payload in (
                ('SKIPPED of 16', listings.skipped('')),
                ('SKIPPED of 177', listings.skipped('x' * 161)),
                ('is not 0', listings.skipped('x', zero=1)),
                ('printable', listings.skipped('\n')),
                ('printable', listings.skipped('\x7f')),
                ('printable', listings.skipped('a\0'))):
            self.frames(what, (form.SKIPPED, payload))
        self.frames('more than 64 SKIPPED',
                    *[(form.SKIPPED, listings.skipped('x'))] * 65)

    def test_end(self):
        good = listings.end()
        for what, payload in (
                ('END of 159', good[:-1]),
                ('status 6', struct.pack('<I', 6) + good[4:]),
                ('method 3', good[:4] + struct.pack('<I', 3) + good[8:]),
                ('is not 0', good[:-1] + b'\1'),
                ('END, which has 1', listings.end(extents=1))):
            self.frames(what, (form.END, payload))


class ManyTest(base.TestCase):

    def test_the_largest(self):
        """16 M extents: whatever else, it is no matter of minutes."""
        count = form.MAX_EXTENTS
        made = parser.ListingParser()
        made.feed(listings.listing(
            (form.BEGIN, listings.begin()),
            (form.DISK, listings.disk(0, dataclasses.replace(
                listings.VDA, size=1 << 50)))))
        each = form.MAX_PAYLOAD // form.EXTENT_LEN
        words = numpy.zeros((each, 2), '<u8')
        for number in range(count // each):
            at = numpy.arange(number * each, (number + 1) * each,
                              dtype=numpy.uint64)
            words[:, 0] = at * 8192
            words[:, 1] = (count - at) * 4096
            made.feed(listings.frame(form.EXTENTS, number + 2,
                                     words.tobytes()))
        made.feed(listings.frame(form.END, count // each + 2,
                                 listings.end(extents=count)))
        self.assertTrue(made.complete)
        self.assertEqual([count, 0], made.pages)


class FuzzTest(base.TestCase):
    """Whatever arrives: ListingError, or something within bounds."""

    #: Seconds; what one run covers depends on the machine, not its seeds.
    budget = 5.0

    @staticmethod
    def mutate(rng, data):
        data = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            if not data:
                break
            at = rng.randrange(len(data))
            kind = rng.randrange(6)
            if kind == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                data[at:at + 4] = struct.pack('<I', rng.choice(
                    (0, 1, 2, 16, 64, 65, 65536, 65537, 1 << 24,
                     (1 << 32) - 1)))
            elif kind == 2:
                at &= ~7
                data[at:at + 8] = struct.pack('<Q', rng.choice(
                    (0, 4095, 4096, GIB, (1 << 63) - 4096, 1 << 63,
                     (1 << 64) - 1, rng.getrandbits(64))))
            elif kind == 3:
                del data[at:]
            elif kind == 4:
                del data[at:at + rng.choice((1, 16, 32))]
            else:
                part = data[at:at + rng.choice((1, 16, 80))]
                data[at:at] = part
        return bytes(data)

    def assert_in_bounds(self, made):
        end = 0
        for gpa, pages, offset, disk, kind in extents_of(made):
            self.assertGreaterEqual(gpa, end)
            end = gpa + pages * 4096
            self.assertLess(end, 1 << 63)
            self.assertLessEqual(offset + pages * 4096,
                                 made.disks[disk].size)
            self.assertLess(kind, 2)
            self.assertEqual((0, 0), (gpa % 4096, offset % 512))

    def test_fuzz(self):
        good = [rich(0)[0], listings.small(), listings.small(
            skips=('one', 'two'), given=[(number * 65536, number % 16 + 1,
                                          number * 8192, 0)
                                         for number in range(40)]),
            listings.listing(
                (form.BEGIN, listings.begin()),
                (form.DISK, listings.disk(0, listings.VDA)),
                (form.COMPACT, listings.compact(*(
                    (number * 12288, number % 3 + 1,
                     number * 7919 % 1000 * 4096, 0, number % 2)
                    for number in range(300)))),
                (form.END, listings.end()))]
        until = time.monotonic() + self.budget
        accepted = refused = 0
        for seed in range(20000):
            rng = random.Random(seed)
            data = self.mutate(rng, rng.choice(good))
            made = parser.ListingParser()
            step = rng.choice((1 << 20, 64, 17))
            try:
                for at in range(0, len(data), step):
                    made.feed(data[at:at + step])
                accepted += 1
            except errors.ListingError:
                refused += 1
            try:
                self.assert_in_bounds(made)
            except Exception as error:
                raise AssertionError('seed %d' % seed) from error
            if time.monotonic() > until:
                break
        # The test is worth something.
        self.assertGreater(accepted, 20)
        self.assertGreater(refused, 20)
