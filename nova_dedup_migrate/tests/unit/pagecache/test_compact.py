# SPDX-License-Identifier: Apache-2.0
import random
import struct

from nova_dedup_migrate.pagecache import compact
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat as form
from nova_dedup_migrate.pagecache import parser
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.pagecache import listings

BASE = 1 << 32
SDA = form.Disk(bus='scsi', size=1 << 50, scsi=(0, 1), name='sda')
FEW = [(BASE, 1, 512, 0, 1), (BASE + 4096, 4096, 8192, 1, 0),
       (BASE + (5000 << 12), 2, 4096, 1, 0),
       (BASE + (65535 << 12), 7, 1 << 49, 1, 0)]


def extents(words):
    some = parser.Extents.of_words(words)
    return [tuple(map(int, row)) for row in zip(
        some.gpa, some.pages, some.offset, some.disk, some.kind,
        strict=True)]


def scattered(count, chance):
    """Return extents as a machine in use has them, ascending."""
    found, page = [], 0
    for _ in range(count):
        pages = chance.choice((1, 1, 1, 2, 3, 4096))
        if page + pages > 65535:
            break
        found.append((BASE + (page << 12), pages,
                      chance.randrange(1 << 40) // 512 * 512,
                      chance.randrange(2), chance.randrange(2)))
        page += pages + chance.choice((0, 1, 5))
    return found


class DecodeTest(base.TestCase):

    def test_few(self):
        self.assertEqual(FEW, extents(compact.decode(
            memoryview(listings.compact(*FEW)))))

    def test_many(self):
        chance = random.Random(5)
        for _ in range(50):
            given = scattered(chance.choice((1, 2, 300, 4080)), chance)
            self.assertEqual(given, extents(compact.decode(
                memoryview(listings.compact(*given)))))

    def test_size(self):
        chance = random.Random(6)
        given = [(BASE + 3 * number * 4096, 1 + (chance.random() < 0.4),
                  chance.randrange(5 << 20) << 12, 0, 0)
                 for number in range(form.MAX_COMPACT_EXTENTS)]
        self.assertLess(len(listings.compact(*given)), 5 * len(given))

    def assert_refused(self, reason, payload):
        error = self.assertRaises(errors.ListingError, compact.decode,
                                  memoryview(payload))
        self.assertIn(reason, str(error))

    def test_hostile(self):
        one = (BASE, 2, 4096, 0, 0)
        start = struct.pack('<Q', BASE)
        good = listings.compact(one)
        self.assert_refused('0 bytes', b'')
        self.assert_refused('bytes', good[:26])
        self.assert_refused('base', b'\x01' + good[1:])
        self.assert_refused('base', b'\xff' * 8 + good[8:])
        self.assert_refused('cut off', good + b'\0')
        self.assert_refused('cut off', good[:-1])
        for reason, wrong in (
                ('0 extents', {'count': 0}), ('4081', {'count': 4081}),
                ('65535', {'count': 65535}), ('reserved', {'zero': 1}),
                ('offset', {'first': 513}), ('offset', {'first': 1 << 63}),
                ('disk 64', {'disk': 64}), ('kind 2', {'kind': 2})):
            self.assert_refused(reason, start + listings.group(
                [one], BASE, **wrong))
        head = good[:24] + b'\0\0'
        self.assert_refused('not in order', head + b'\x02')
        self.assert_refused('too long', head + b'\xff' * 9)
        self.assert_refused('too long', head + b'\x80' * 8 + b'\0')
        self.assert_refused('4097 pages',
                            head + b'\x01' + listings.varint(4095))
        two = listings.group([one, (BASE, 1, 8192, 0, 0)], BASE)
        self.assert_refused('not in order', start + two[:20] + b'\0'
                            + listings.varint((1 << 53) - 2))

    def test_more_groups_than_extents_are_allowed(self):
        group = listings.group([(BASE, 1, 0, 0, 0)] * 2000, BASE)
        self.assert_refused('group of 2000',
                            struct.pack('<Q', BASE) + 3 * group)

    def test_fuzz(self):
        """Whatever comes is extents within bounds, or refused."""
        chance = random.Random(7)
        good = listings.compact(*scattered(40, chance))
        for _ in range(3000):
            data = bytearray(good)
            for _ in range(chance.choice((1, 2, 9))):
                data[chance.randrange(len(data))] = chance.randrange(256)
            if chance.random() < 0.2:
                del data[chance.randrange(len(data)):]
            try:
                words = compact.decode(memoryview(bytes(data)))
            except errors.ListingError:
                continue
            self.assertLessEqual(len(words), form.MAX_COMPACT_EXTENTS)
            for gpa, pages, _, disk, kind in extents(words):
                self.assertLess(gpa, 1 << 64)
                self.assertLessEqual(pages, 4096)
                self.assertLess(disk, 64)
                self.assertLess(kind, 2)


class ParserTest(base.TestCase):

    def listing(self, *frames, count=None):
        return listings.listing(
            (form.BEGIN, listings.begin(0)),
            (form.DISK, listings.disk(0, listings.VDA)),
            (form.DISK, listings.disk(1, SDA)), *frames,
            (form.END, listings.end(extents=count)))

    def parse(self, data, **given):
        made = parser.ListingParser(**given)
        made.feed(data)
        return made

    def test_between_others(self):
        later = (BASE + (1 << 30), 1, 0, 0, 0)
        made = self.parse(self.listing(
            (form.EXTENTS, listings.extents((0, 1, 512, 0))),
            (form.COMPACT, listings.compact(*FEW)),
            (form.COMPACT, listings.compact(later)), count=6))
        self.assertTrue(made.complete)
        self.assertEqual([(0, 1, 512, 0, 0), *FEW, later],
                         [row for words in made._words
                          for row in extents(words)])
        self.assertEqual(6, made.extents)

    def assert_refused(self, reason, *given, **limits):
        error = self.assertRaises(errors.ListingError, self.parse,
                                  self.listing(*given), **limits)
        self.assertIn(reason, str(error))

    def test_refused(self):
        few = (form.COMPACT, listings.compact(*FEW))
        self.assert_refused('more than 3', few, max_extents=3)
        self.assert_refused('not in order', few, few)
        self.assert_refused('not in order', (form.COMPACT, listings.compact(
            (BASE, 2, 0, 0, 0), (BASE + 4096, 1, 0, 1, 0))))
        self.assert_refused('end of its disk', (
            form.COMPACT, listings.compact((BASE, 1, 1 << 40, 0, 0))))
        self.assert_refused('only 2 are listed', (
            form.COMPACT, listings.compact((BASE, 1, 0, 2, 0))))
        top = (1 << 63) - 4096
        self.assert_refused('largest address', (
            form.COMPACT, listings.compact((top, 1, 0, 0, 0))))
