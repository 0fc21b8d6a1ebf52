# SPDX-License-Identifier: Apache-2.0
from benchmarks import spread
from nova_dedup_migrate.tests import base


class SpreadTest(base.TestCase):

    def test_median_and_extremes(self):
        self.assertEqual(spread.Spread(2.0, 1.0, 9.0, 3),
                         spread.of([9.0, 1.0, 2.0]))
        self.assertEqual(spread.Spread(1.5, 1.0, 2.0, 2),
                         spread.of([1.0, None, 2.0]))
        self.assertIsNone(spread.of([None]))
        self.assertIsNone(spread.of([]))

    def test_shown(self):
        self.assertEqual('2.0 (1.0-9.0)',
                         spread.of([9.0, 1.0, 2.0]).show(1))
        self.assertEqual('0.50', spread.of([0.5]).show())

    def test_ratios_are_of_neighbours(self):
        # Machine twice as slow during the second pair: same quotient.
        found = spread.ratios([1.0, 2.0], [2.0, 4.0])
        self.assertEqual(spread.Spread(0.5, 0.5, 0.5, 2), found)

    def test_ratios_without_a_reference(self):
        self.assertIsNone(spread.ratios([1.0], [None]))
        self.assertIsNone(spread.ratios([1.0], [0.0]))
        self.assertEqual(1, spread.ratios([1.0, 1.0], [2.0, None]).n)

    def test_differences(self):
        self.assertEqual(spread.Spread(5.0, 3.0, 7.0, 2),
                         spread.differences([10, 20], [7, 13]))

    def test_interval(self):
        self.assertIsNone(spread.interval([1, 2, 3, 4, 5]))
        self.assertEqual((1, 6), spread.interval([6, 5, 4, 3, 2, 1]))
        # Of 20 values the 6th and the 15th, as tables of order
        # statistics have it.
        self.assertEqual((6, 15), spread.interval(range(1, 21)))
