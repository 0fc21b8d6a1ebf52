# SPDX-License-Identifier: Apache-2.0
import os

from benchmarks import pairs
from nova_dedup_migrate.tests import base


class PairsTest(base.TestCase):

    def test_ratios(self):
        pair = pairs.Pair(off=pairs.Slice(1.0, 0.5, 1000, 10),
                          on=pairs.Slice(2.0, 1.1, 2000, 20))
        self.assertAlmostEqual(1.0, pair.rate_ratio)
        self.assertAlmostEqual(1.1, pair.cost_ratio)
        # 55 ms a page instead of 50
        self.assertAlmostEqual(5e6, pair.ns_per_page)

    def test_no_pages(self):
        one = pairs.Slice(1.0, 0.5, 1)
        self.assertIsNone(pairs.Pair(one, one).ns_per_page)

    def test_order_alternates(self):
        seen = []

        def work():
            return pairs.Slice(1.0, 1.0, 2 if seen[-1] else 1)

        found = pairs.alternate(seen.append, work, 3)
        self.assertEqual([False, True, True, False, False, True], seen)
        self.assertEqual([2.0] * 3, [pair.rate_ratio for pair in found])

    def test_estimate(self):
        self.assertIsNone(pairs.estimate([]))
        few = pairs.estimate([1.0, 2.0])
        self.assertEqual((1.5, None, 2), (few.median, few.low, few.n))
        self.assertEqual((6, 15), (pairs.estimate(range(1, 21)).low,
                                   pairs.estimate(range(1, 21)).high))

    def test_processor_time(self):
        before = pairs.processor_time(os.getpid())
        sum(range(1000000))
        self.assertGreater(pairs.processor_time(os.getpid()), before)
