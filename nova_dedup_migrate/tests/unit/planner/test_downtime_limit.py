# SPDX-License-Identifier: Apache-2.0
import dataclasses
import math

from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import downtime_limit
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases

#: Nova's for a guest of 1 GB: libvirt.migration.downtime_steps(2)
_STEPS = ((0, 50), (150, 95), (300, 140))
_OPTIONS = facts.Options(downtime_ms=500, downtime_steps=_STEPS,
                         max_extra_downtime_ms=500)


class LookTest(base.TestCase):

    def looks(self, downtimes, every=0.5, start=0.0, most=math.inf,
              **changes):
        """Return (number of the look, limit) of each limit to be set."""
        limit = downtime_limit.DowntimeLimit(
            dataclasses.replace(_OPTIONS, **changes), most)
        found = [(number, limit.look(number, downtime,
                                     start + number * every))
                 for number, downtime in enumerate(downtimes, 1)]
        return [(number, value) for number, value in found
                if value is not None]

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
        self.assertEqual([], self.looks([60] * 30, downtime_ms=80,
                                        downtime_steps=()))

    def test_never_more_than_live_migration_downtime(self):
        self.assertEqual([(8, 500)], self.looks([499] * 15))
        self.assertEqual([(8, 500)], self.looks([900] * 15))

    def test_never_more_than_the_plan_permits(self):
        self.assertEqual([(8, 70)], self.looks([60] * 15, most=70.9))
        self.assertEqual([], self.looks([60] * 15, most=30))

    def test_no_more_than_max_extra_downtime_beyond_novas_limit(self):
        for start, expected in ((0.0, 100), (150.0, 145), (300.0, 190)):
            self.assertEqual([(8, expected)], self.looks(
                [400] * 15, start=start, max_extra_downtime_ms=50))
        self.assertEqual([], self.looks([400] * 15,
                                        max_extra_downtime_ms=0))

    def test_more_where_it_is_not_enough(self):
        self.assertEqual([(8, 75), (16, 113)],
                         self.looks([60] * 8 + [90] * 15))

    def test_nova_has_lowered_it_again(self):
        """Its step of 95 ms comes after ours of 125 ms was set."""
        self.assertEqual([(8, 125), (16, 125)],
                         self.looks([100] * 20, start=145.0))

    def test_a_look_within_a_round_is_none(self):
        limit = downtime_limit.DowntimeLimit(_OPTIONS)
        for time in range(100):
            self.assertIsNone(limit.look(3, 60, float(time)))

    def test_qemu_has_not_calculated_it_yet(self):
        self.assertEqual([], self.looks([None, 0] * 20))


class PublishedDatabaseTest(base.TestCase):
    """doc/source/benchmarks/database, 50 Mbit/s.

    Ordinary migrations ended after 232 to 252 s with 386 ms of downtime,
    when Nova's limit was 95 ms.  Those that left pages out ended after 58
    to 115 s with 663 to 864 ms, the limit being raised to 1.25 times what
    a round left, 300 to 400 ms.
    """

    stock_ms = 386
    #: Of that, what is not the limit's: devices, disks, libvirt.
    other_ms = stock_ms - 95

    def downtimes(self, left, extra):
        """Return the downtime of a migration that ends at any time."""
        limit = downtime_limit.DowntimeLimit(dataclasses.replace(
            _OPTIONS, max_extra_downtime_ms=extra))
        now = 50
        for number in range(1, 400):
            time = number * left / 1000
            nova = max(value for since, value in _STEPS if since <= time)
            now = max(now, nova, limit.look(number, left, time) or 0)
            yield now + self.other_ms

    def test_inside(self):
        for left in range(250, 600, 25):
            self.assertLessEqual(
                max(self.downtimes(left, 50)), self.stock_ms + 50 + 45 * (
                    # Nova's own next step, from 300 s on
                    399 * left / 1000 >= 300), left)
        for left in (250, 300, 400):
            for number, downtime in enumerate(self.downtimes(left, 50), 1):
                if number * left / 1000 < 252:
                    self.assertLessEqual(downtime, self.stock_ms + 50)

    def test_without_the_rule(self):
        """It explains what was measured."""
        self.assertEqual(666, max(self.downtimes(300, 500)))
        self.assertEqual(791, max(self.downtimes(400, 500)))


class OfPlanTest(base.TestCase):

    def of(self, options=(), **changes):
        given = cases.make(options={'downtime_steps': _STEPS,
                                    **dict(options)}, **changes)
        plan = choose.choose(given)
        return plan, downtime_limit.of_plan(given.options, plan)

    def test_both_sides(self):
        for guest in ({}, {'hint_pages': 0}):
            plan, limit = self.of(guest=guest)
            self.assertIsNotNone(limit, plan.strategy)

    def test_switched_off(self):
        for options in ({'adapt_downtime_limit': False},
                        {'strategy': 'off'}):
            plan, limit = self.of(options)
            self.assertIsNone(plan.max_downtime_limit_ms)
            self.assertIsNone(limit)

    def test_nova_has_no_steps(self):
        self.assertIsNone(self.of({'downtime_steps': ()})[1])

    def test_without_a_plan(self):
        self.assertIsNotNone(downtime_limit.of_plan(_OPTIONS))
        self.assertIsNone(downtime_limit.of_plan(dataclasses.replace(
            _OPTIONS, adapt_downtime_limit=False)))

    def test_stocks_downtime_bounds_it(self):
        plan, limit = self.of()
        self.assertEqual('shared_nas', plan.strategy)
        self.assertAlmostEqual(plan.stock.downtime.likely * 1000 + 50,
                               plan.max_downtime_limit_ms)
        self.assertLess(plan.max_downtime_limit_ms, 500)
