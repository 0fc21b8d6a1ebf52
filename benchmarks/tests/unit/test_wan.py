# SPDX-License-Identifier: Apache-2.0
from benchmarks import run
from benchmarks import wan
from nova_dedup_migrate.tests import base
from testkit import results


def result(seconds=20.0, resent=0, trips=1, right=True):
    return run.Result(
        'dedup', total_time_s=seconds, downtime_ms=90,
        link_bytes=250_000_000, ram_identical=right, guest_verified=True,
        source_statistics={'resent_pages': resent, 'round_trips': trips,
                           'round_trip_us': 151_000,
                           'negotiation_us': 160_000})


class WanTest(base.TestCase):

    def judged(self, **given):
        """Return the names of the rows that are not ok."""
        into = results.Results('make bench-wan')
        wan.judge(into, 150, result(**given), result())
        return [row.name for row in into.rows if not row.ok]

    def test_as_good_as_without_a_delay(self):
        self.assertEqual([], self.judged())
        self.assertEqual([], self.judged(seconds=20.45))

    def test_what_is_wrong_is_named(self):
        for given, name in (
                ({'resent': 1}, 'resent'), ({'right': False}, 'memory right'),
                ({'trips': 2}, 'round trips waited for'),
                ({'seconds': 25.0}, 'rate, of that without a delay')):
            self.assertEqual(['150 ms: ' + name], self.judged(**given))

    def test_without_figures_nothing_is_ok(self):
        into = results.Results('make bench-wan')
        wan.judge(into, 60, run.Result('dedup'), result())
        self.assertEqual([False] * 4, [row.ok for row in into.rows])

    def test_line(self):
        self.assertEqual(('150', '20.0', '250', '100', '0', '1', '151',
                          '160', '90'), wan.line(result(), 150))
