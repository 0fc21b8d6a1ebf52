# SPDX-License-Identifier: Apache-2.0
"""Which rounds count, and how many."""

import dataclasses

from nova_dedup_migrate.planner import downtime_limit
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.tests import base

#: Nova's limit is 50 ms, and 100 ms from 100 s on.
_OPTIONS = facts.Options(downtime_ms=500, max_extra_downtime_ms=450,
                         downtime_steps=((100, 100), (0, 50)))


class BoundsTest(base.TestCase):

    def first(self, downtimes, every=1.0, start=0.0, **changes):
        """Return (round, limit) of the first limit, None if there is none.

        :param downtimes: milliseconds by round
        """
        limit = downtime_limit.DowntimeLimit(
            dataclasses.replace(_OPTIONS, **changes))
        for number, downtime in enumerate(downtimes, 1):
            found = limit.look(number, downtime, start + number * every)
            if found is not None:
                return number, found
        return None

    def test_eight_rounds(self):
        self.assertEqual((8, 250), self.first([200] * 20))

    def test_two_seconds(self):
        """From the first of the rounds to the last one."""
        self.assertEqual((9, 250), self.first([200] * 20, every=0.25))
        self.assertEqual((17, 250), self.first([200] * 20, every=0.125))

    def test_rounds_of_long_ago_do_not_count(self):
        """Of the last eight, the middle of the older half is 100 ms from
        the eleventh on; with those before it would be 500 ms."""
        self.assertEqual((11, 125), self.first([900, 700, 500, 300]
                                               + [100] * 20))

    def test_less_is_less_than_four_fifths(self):
        half = [100.0] * 4
        self.assertEqual((8, 100), self.first(half + [80.0] * 4))
        self.assertIsNone(self.first(half + [79.9] * 4))

    def test_the_middle_of_them_counts(self):
        """One round that leaves much, or little, is none."""
        self.assertEqual((8, 250), self.first([200] * 7 + [9000]))
        self.assertEqual((8, 250), self.first([200] * 7 + [1]))

    def test_rounded_up(self):
        self.assertEqual((8, 126), self.first([100.1] * 8))

    def test_novas_limit_of_that_time(self):
        """No lower, and no more than the extra downtime above it."""
        for start, extra, expected in (
                (0.0, 10, (8, 60)), (91.0, 10, (8, 60)),
                (92.0, 10, (8, 110)), (92.0, 0, None)):
            self.assertEqual(expected, self.first(
                [200] * 8, start=start, max_extra_downtime_ms=extra), start)

    def test_no_step_yet(self):
        self.assertEqual((8, 10), self.first(
            [200] * 8, max_extra_downtime_ms=10,
            downtime_steps=((100, 100),)))

    def test_a_limit_of_one_millisecond_more(self):
        self.assertEqual((8, 51), self.first([40.8] * 8))
        self.assertIsNone(self.first([40.0] * 8))

    def test_constants(self):
        self.assertEqual(1.25, downtime_limit.MARGIN)
