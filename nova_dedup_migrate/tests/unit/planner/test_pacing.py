# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.planner import pacing
from nova_dedup_migrate.tests import base


class AdaptiveRateTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.rate = pacing.AdaptiveRate(12_500_000, 31_250_000)

    def test_nothing_changes_within_a_round(self):
        self.assertIsNone(self.rate.update(0, 0))
        self.assertIsNone(self.rate.update(1, 99_000_000))
        self.assertIsNotNone(self.rate.update(2, 0))
        self.assertIsNone(self.rate.update(2, 99_000_000))

    def test_next_round_is_faster_than_the_guest(self):
        self.assertEqual(pacing.Step(20_000_000 + 6_250_000),
                         self.rate.update(2, 20_000_000))

    def test_never_slower_than_the_start(self):
        self.assertEqual(pacing.Step(12_500_000), self.rate.update(2, 1000))

    def test_last_round_when_the_guest_is_too_fast(self):
        self.assertEqual(pacing.Step(31_250_000, last=True),
                         self.rate.update(2, 26_000_000))

    def test_a_round_at_the_maximum_is_not_the_last(self):
        self.assertEqual(pacing.Step(31_250_000),
                         self.rate.update(2, 25_000_000))

    def test_what_is_left_to_the_last_round(self):
        self.assertEqual(256 * 1024, pacing.LAST)

    def test_last_round_at_the_latest_as_xen_has_it(self):
        self.assertFalse(self.rate.update(29, 0).last)
        self.assertTrue(self.rate.update(30, 0).last)

    def test_the_maximum_is_below_the_minimum(self):
        self.assertEqual(5, pacing.AdaptiveRate(9, 5).minimum)
