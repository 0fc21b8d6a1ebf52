# SPDX-License-Identifier: Apache-2.0
"""Bitmaps against lists of booleans."""

import random

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.tests import base


class BitmapTest(base.TestCase):
    def test_against_a_list(self):
        for seed in range(200):
            source = random.Random(seed)
            size = source.randrange(1, 200)
            bits, model = bitmap.Bitmap(size), [False] * size
            for _ in range(source.randrange(6)):
                first = source.randrange(size)
                count = source.randrange(size - first + 1)
                value = source.random() < 0.7
                (bits.set if value else bits.clear)(first, count)
                model[first:first + count] = [value] * count
            self._compare(bits, model, source)

    def _compare(self, bits, model, source):
        size = len(model)
        self.assertEqual(model, [bits[n] for n in range(size)])
        self.assertEqual(sum(model), bits.count())
        self.assertEqual(model, [
            any(first <= n < first + count for first, count in bits.runs())
            for n in range(size)])
        runs = list(bits.runs())
        for one, other in zip(runs, runs[1:], strict=False):
            self.assertLess(sum(one), other[0])
        factor = source.choice((1, 2, 4, 8))
        self.assertEqual(
            [all(model[n:n + factor]) for n in range(0, size, factor)],
            [bits.coarser(factor)[n] for n in range(-(-size // factor))])
        first = source.randrange(size)
        count = source.randrange(size - first + 1)
        self.assertEqual(not any(model[first:first + count]),
                         bits.is_clear(first, count))
        self.assertEqual(all(model[first:first + count]),
                         bits.is_set(first, count))
        self.assertEqual(model, [
            bitmap.Bitmap(size, bytes(bits))[n] for n in range(size)])

    def test_long(self):
        """More bits than are looked at in one step."""
        size = 3 * (8 << 20) + 5
        bits = bitmap.Bitmap(size)
        bits.set(7, size - 7)
        self.assertEqual([(7, size - 7)], list(bits.runs()))
        coarse = bits.coarser(2)
        self.assertEqual([(4, coarse.size - 4)], list(coarse.runs()))
        self.assertTrue(bits.is_set(7, size - 7))
        self.assertFalse(bits.is_set(6, size - 6))

    def test_not_of_this_size(self):
        for size, data in ((9, b'x'), (8, b'xx'), (3, b'\x08')):
            self.assertRaises(ValueError, bitmap.Bitmap, size, data)

    def test_outside(self):
        bits = bitmap.Bitmap(9)
        for first, count in ((-1, 1), (0, 10), (9, 1), (3, -1)):
            self.assertRaises(IndexError, bits.set, first, count)
        self.assertRaises(IndexError, bits.__getitem__, 9)

    def test_extents(self):
        bits = bitmap.of_extents([(5, 10), (95, 4)], 10, 99)
        self.assertEqual([(0, 20), (90, 9)], list(bits.extents(10, 99)))
        self.assertRaises(ValueError, bitmap.of_extents, [(95, 5)], 10, 99)
