# SPDX-License-Identifier: Apache-2.0
import math

from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import units
from nova_dedup_migrate.tests import base


class UnitsTest(base.TestCase):

    def _check(self, form, table):
        for value, expected in table:
            self.assertEqual(expected, form(value))

    def test_size(self):
        self._check(units.size, (
            (0, '0 B'), (999, '999 B'), (999.4, '999 B'), (999.5, '1 kB'),
            (12500, '12.5 kB'), (99.94e6, '99.9 MB'), (99.95e6, '100 MB'),
            (100.4e6, '100 MB'), (1.25e9, '1.2 GB'), (3e12, '3 TB'),
            (5e18, '5000 PB'), (math.inf, 'without end')))

    def test_duration(self):
        self._check(units.duration, (
            (0, '0.0 s'), (0.26, '0.3 s'), (9.5, '9.5 s'), (10, '10 s'),
            (42.4, '42 s'), (99.4, '99 s'), (99.5, '1 min 40 s'),
            (100, '1 min 40 s'), (3599.7, '60 min 0 s'),
            (5999, '99 min 59 s'), (6000, '1 h 40 min'),
            (7800, '2 h 10 min'), (math.inf, 'without end')))

    def test_pause(self):
        self._check(units.milliseconds, (
            (0.02, '20 ms'), (3.5, '3500 ms'), (9.999, '9999 ms'),
            (9.9995, '10.0 s'), (12, '12 s')))

    def test_band(self):
        self.assertEqual('42 s (36 s to 60 s)', units.band(
            plan.Band(36, 42, 60), units.duration))
        self.assertEqual('42 s (36 s or more)', units.band(
            plan.Band(36, 42, math.inf), units.duration))
