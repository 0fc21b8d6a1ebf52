# SPDX-License-Identifier: Apache-2.0
"""The order of reading, against a guest that writes meanwhile."""

import random
from unittest import mock

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import order
from nova_dedup_migrate.tests import base

GRANULE = 65536
SIZE = 200 * GRANULE - 512


class OrderTest(base.TestCase):
    def setUp(self):
        super().setUp()
        patcher = mock.patch.multiple(order, WINDOW=10 * GRANULE,
                                      HOLE=1, LOOKS=1 << 20)
        patcher.start()
        self.addCleanup(patcher.stop)
        self.dirty = bitmap.Bitmap(200)
        self.dirty.set(0, 200)
        self.looks = 0
        self.on_look = lambda number: ()
        self.data = set(range(200))

    def clear(self, offset, length):
        self.dirty.clear(offset // GRANULE, -(-length // GRANULE))

    def written(self):
        self.looks += 1
        for granule in self.on_look(self.looks):
            self.dirty.set(granule)
        return self.dirty

    def filled(self, offset, length):
        first = offset // GRANULE
        return [number in self.data for number in range(
            first, first - (-length // GRANULE))]

    def ordered(self, wanted=((0, SIZE),)):
        return list(order.hot_last(list(wanted), SIZE, GRANULE, self.clear,
                                   self.written, self.filled))

    def granules(self, ranges):
        return [number for offset, length in ranges for number in range(
            offset // GRANULE, -(-(offset + length) // GRANULE))]

    def test_nothing_is_written(self):
        found = self.ordered()
        self.assertEqual(list(range(200)), self.granules(found))
        self.assertEqual(SIZE, sum(length for _, length in found))

    def test_hot_last(self):
        """What is written before its turn; what was read is not again."""
        writes = {3: (5, 55, 199), 7: (60, 61, 150)}
        self.on_look = lambda number: writes.get(number, ())
        found = self.granules(self.ordered())
        self.assertEqual([55, 60, 61, 150, 199], found[-5:])
        self.assertEqual(list(range(200)), sorted(found))

    def test_what_holds_no_data_comes_first(self):
        self.data = {*range(30, 50), *range(101, 150, 2), 199}
        writes = {1: (3, 40), 3: (149, 60)}
        self.on_look = lambda number: writes.get(number, ())
        found = self.ordered()
        empty = sorted(set(range(200)) - self.data)
        self.assertEqual(empty + sorted(self.data - {40, 149}) + [40, 149],
                         self.granules(found))
        # after each ten granules of data
        self.assertEqual(5, self.looks)
        self.assertEqual((0, 10 * GRANULE), found[0])
        self.assertEqual(SIZE, sum(length for _, length in found))

    def test_short_holes_stay_where_they_are(self):
        self.data = {*range(30, 50), *range(101, 150, 2), 199}
        with mock.patch.object(order, 'HOLE', 2 * GRANULE):
            found = self.granules(self.ordered())
        late = {*range(30, 50), *range(100, 150), 199}
        self.assertEqual(sorted(set(range(200)) - late) + sorted(late),
                         found)

    def test_short_pass(self):
        """Nothing is cleared for it."""
        wanted = [(3 * GRANULE, GRANULE), (50 * GRANULE + 32768, 32768)]
        self.assertEqual([3, 50], self.granules(self.ordered(wanted)))
        self.assertEqual(0, self.looks)
        self.assertEqual(200, self.dirty.count())

    def test_many_ranges(self):
        wanted = [(n * GRANULE, GRANULE) for n in range(0, 200, 2)]
        with mock.patch.object(order, '_MAX_RANGES', 99):
            self.assertEqual(wanted, self.ordered(wanted))
        self.assertEqual(0, self.looks)

    def test_each_once(self):
        choice = random.Random(5)
        self.on_look = lambda number: choice.sample(range(200), 9)
        for _ in range(20):
            self.data = set(choice.sample(range(200), 90))
            wanted = sorted(choice.sample(range(200), 120))
            found = self.granules(self.ordered([
                (n * GRANULE, min(GRANULE, SIZE - n * GRANULE))
                for n in wanted]))
            self.assertEqual(wanted, sorted(found))
