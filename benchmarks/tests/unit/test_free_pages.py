# SPDX-License-Identifier: Apache-2.0
import types

from benchmarks import free_pages
from nova_dedup_migrate.tests import base
from testkit import results


def runs(differing=0, on=100.0, written=60.0):
    """Return two runs of each guest, with and without reporting."""
    found = {}
    for guest in free_pages.GUESTS:
        for way in free_pages.WAYS:
            used = guest == free_pages.USED
            found[guest, way] = [types.SimpleNamespace(
                sent=on if way == 'on' else 200.0, seconds=2.0, resident=300.0,
                written=None if not used else written if way == 'on' else 60.0,
                differing=differing if way == 'on' else 0)] * 2
    return found


class FreePagesTest(base.TestCase):

    def bad(self, **given):
        out = results.Results('make bench-free-pages')
        free_pages.judge(out, runs(**given))
        return [row.name for row in out.rows if not row.ok]

    def test_targets(self):
        self.assertEqual([], self.bad())
        self.assertEqual(['booted, on: wrong pages',
                          'in use, on: wrong pages'], self.bad(differing=1))
        self.assertEqual(['booted: sent with reporting',
                          'in use: sent with reporting'], self.bad(on=200.0))
        self.assertEqual(['written with reporting'], self.bad(written=58.0))

    def test_lines(self):
        self.assertEqual(
            [('booted', 'off', '200 (200-200)', '2.0 (2.0-2.0)',
              '300 (300-300)', '-'),
             ('in use', 'on', '100 (100-100)', '2.0 (2.0-2.0)',
              '300 (300-300)', '60 (60-60)')],
            [line for line in free_pages.lines(runs())
             if line[:2] in (('booted', 'off'), ('in use', 'on'))])
