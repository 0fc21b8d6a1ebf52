# SPDX-License-Identifier: Apache-2.0
import math

from nova_dedup_migrate.planner import measured_downtime
from nova_dedup_migrate.planner import working_set
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases

_WINDOWS = (working_set.Window(10.0, 20e6, 20e6, 5.0),
            working_set.Window(1.0, 5e6, 6e6, 1.0))


def expect(windows=_WINDOWS, **changes):
    return measured_downtime.expect(cases.make(
        guest={'windows': windows, 'in_use': 1e9}, **changes))


class MeasuredDowntimeTest(base.TestCase):

    def test_of_the_newest_windows(self):
        rate, found = expect()
        self.assertGreater(rate, 1e6)
        # the same as of the sizes, whatever the order of the windows
        self.assertEqual(
            working_set.expect(1e9, working_set.WorkingSet(
                ((1.0, 5e6), (10.0, 20e6))), rate, 0.5), found)
        self.assertTrue(found.converges)
        self.assertLessEqual(found.downtime, 0.5)

    def test_a_faster_link_has_a_shorter_downtime(self):
        _, slow = expect(link={'configured': 12.5e6, 'measured': 12.5e6},
                         options={'downtime_ms': 1})
        _, fast = expect(link={'configured': 125e6, 'measured': 125e6},
                         options={'downtime_ms': 1})
        self.assertLess(fast.downtime, slow.downtime)

    def test_nothing_was_measured(self):
        self.assertIsNone(expect(()))

    def test_hostile_windows(self):
        for seconds, size in ((0.0, 1.0), (-1.0, 1.0), (math.nan, 1.0),
                              (math.inf, 1.0), (1.0, math.inf),
                              (1.0, math.nan), (1.0, -5.0), (1e-300, 1e300),
                              ('x', None)):
            found = expect((working_set.Window(seconds, size, size),) * 99)
            if found is not None:
                self.assertTrue(math.isfinite(found[1].downtime))
                self.assertTrue(math.isfinite(found[1].seconds))
