# SPDX-License-Identifier: Apache-2.0
from benchmarks import targets
from nova_dedup_migrate.tests import base


class TargetsTest(base.TestCase):

    def test_bound_is_the_slower_path(self):
        self.assertEqual(4.0, targets.bound_s(100e6, 200e6, 25e6, 100e6))
        self.assertEqual(20.0, targets.bound_s(100e6, 200e6, 25e6, 10e6))

    def test_storage_that_gives_nothing(self):
        self.assertEqual(12.0, targets.bound_s(100e6, 200e6, 25e6, 0.0))

    def test_time(self):
        self.assertTrue(targets.time(4.2, 4.0).reached)
        missed = targets.time(4.41, 4.0)
        self.assertFalse(missed.reached)
        self.assertAlmostEqual(0.05, missed.excess)

    def test_link_bytes(self):
        limit = targets.link_bytes(0, 1_000_000, 1000).limit
        self.assertEqual(1_020_000 + 24_000, limit)

    def test_downtime(self):
        self.assertTrue(targets.downtime(30, 20).reached)
        self.assertFalse(targets.downtime(31, 20).reached)

    def test_total(self):
        self.assertTrue(targets.total(1.03).reached)
        self.assertFalse(targets.total(1.04).reached)
