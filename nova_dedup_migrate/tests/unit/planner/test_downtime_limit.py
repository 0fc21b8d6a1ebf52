# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.planner import settle
from nova_dedup_migrate.tests import base

#: Nova's for a guest of 1 GB: libvirt.migration.downtime_steps(2)
_STEPS = ((0, 50), (150, 95), (300, 140))


class SettlingTest(base.TestCase):

    def looks(self, downtimes, every=0.5, most=500, steps=_STEPS, start=0.0):
        """Return (number of the look, limit) of each limit to be set."""
        settling = settle.Settling(most, steps)
        found = [(number, settling.look(number, downtime,
                                        start + number * every))
                 for number, downtime in enumerate(downtimes, 1)]
        return [(number, limit) for number, limit in found
                if limit is not None]

    def test_rounds_that_lead_no_further(self):
        self.assertEqual([(8, 75)], self.looks([60] * 15))

    def test_many_short_rounds_have_to_last(self):
        ((number, limit),) = self.looks([60, 58, 63] * 20, every=0.05)
        self.assertEqual(41, number)
        self.assertEqual(75, limit)

    def test_rounds_that_get_less(self):
        self.assertEqual([], self.looks(
            [20000 * 0.9 ** n for n in range(40)]))

    def test_what_the_limit_lets_pass_is_left_to_qemu(self):
        self.assertEqual([], self.looks([38] * 30))
        self.assertEqual([], self.looks([75] * 30, start=150.0))
        self.assertEqual([], self.looks([60] * 30, most=80, steps=()))

    def test_no_more_than_may_be(self):
        self.assertEqual([], self.looks([501] * 30))
        self.assertEqual([(8, 500)], self.looks([499] * 15))

    def test_more_where_it_is_not_enough(self):
        self.assertEqual([(8, 75), (16, 113)],
                         self.looks([60] * 8 + [90] * 15))

    def test_nova_has_lowered_it_again(self):
        """Its step of 95 ms comes after ours of 125 ms was set."""
        self.assertEqual([(8, 125), (16, 125)],
                         self.looks([100] * 20, start=145.0))

    def test_a_look_within_a_round_is_none(self):
        settling = settle.Settling(500, _STEPS)
        for time in range(100):
            self.assertIsNone(settling.look(3, 60, float(time)))

    def test_qemu_does_not_know_yet(self):
        self.assertEqual([], self.looks([None, 0] * 20))
