# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.cmd import report as command
from nova_dedup_migrate.planner import working_set
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tests import base


class WorkingSetTest(base.TestCase):

    def test_windows_and_what_follows(self):
        found = report.WorkingSet(
            (working_set.Window(1.0, 10e6, 12e6, 90.0),
             working_set.Window(60.0, 50e6, 50e6, 300.0)),
            12.5e6, 250.0, 3)
        self.assertEqual(
            '10 MB in 1 s, 12 MB at most, 90 s ago\n'
            '50 MB in 60 s, 50 MB at most, 5 min 0 s ago\n'
            'Expected downtime at 12.5 MB/s: 250 ms',
            command._working_set(found))

    def test_above_the_limit(self):
        found = report.WorkingSet(link_rate=1e6, downtime_ms=5000.0,
                                  converges=False)
        self.assertTrue(command._working_set(found).endswith(
            ', above the limit'))

    def test_not_measured(self):
        self.assertEqual('-', command._working_set(None))
