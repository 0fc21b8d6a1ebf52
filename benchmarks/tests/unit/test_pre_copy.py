# SPDX-License-Identifier: Apache-2.0
import types

from benchmarks import neighbour
from benchmarks import pre_copy
from benchmarks import relay
from nova_dedup_migrate.planner import working_set
from nova_dedup_migrate.tests import base
from testkit import results


def result(seconds=10.0, same=True, converged=True):
    return types.SimpleNamespace(
        total_time_s=seconds, link_bytes=2e8, rounds=3, downtime_ms=100,
        converged=converged, ram_identical=same, guest_verified=True)


def beside(mean=0.9, same=True):
    """Two pairs of each guest; mean is what the adaptive rate leaves."""
    return {(guest, way): [pre_copy.Beside(
        result(20.0 if way == 'adaptive' else 10.0, same),
        mean if way == 'adaptive' else 0.8, 0.7)] * 2
        for guest in pre_copy.GUESTS for way in pre_copy.WAYS}


class BesideTest(base.TestCase):

    def judged(self, **given):
        out = results.Results('make bench-pre-copy')
        pre_copy.judge_beside(out, beside(**given))
        return out.rows

    def test_targets(self):
        self.assertEqual([], [row.name for row in self.judged()
                              if not row.ok])
        bad = {row.name for row in self.judged(mean=0.8) if not row.ok}
        self.assertEqual({"quiet: neighbour's rate", "busy: neighbour's rate"},
                         bad)
        bad = {row.name for row in self.judged(same=False) if not row.ok}
        self.assertIn('busy, adaptive: memory right', bad)

    def test_ratio(self):
        self.assertEqual(
            {'2.00 (2.00-2.00)'},
            {row.value for row in self.judged() if row.name.endswith(
                'time with the adaptive rate')})

    def test_lines(self):
        self.assertEqual(
            ('quiet', 'fixed', '10.0 (10.0-10.0)', '200 (200-200)',
             '3 (3-3)', '100 (100-100)', '0.80 (0.80-0.80)',
             '0.70 (0.70-0.70)'), pre_copy.beside_lines(beside())[0])


class EstimatedTest(base.TestCase):

    def bad(self, converges=True, **given):
        out = results.Results('make bench-pre-copy')
        pre_copy.judge_estimated(out, {('busy', 100.0): pre_copy.Estimated(
            result(**given), working_set.Expected(3, 9.5, 2e8, 0.1, converges),
            '')})
        return [row.name for row in out.rows if not row.ok]

    def test_targets(self):
        self.assertEqual([], self.bad())
        self.assertEqual(['busy, 100 Mbit/s: time'], self.bad(seconds=13.0))
        self.assertEqual(['busy, 100 Mbit/s: time'], self.bad(seconds=7.0))
        self.assertEqual(['busy, 100 Mbit/s: memory right'],
                         self.bad(same=False))

    def test_without_end(self):
        """Time and downtime are of a migration that never ended."""
        self.assertEqual(['busy, 100 Mbit/s: converges'],
                         self.bad(converges=False))
        self.assertEqual([], self.bad(converges=False, converged=False,
                                      seconds=300.0))


class NeighbourTest(base.TestCase):

    def test_worst_second(self):
        samples = [(0.0, 0), (0.5, 50), (1.0, 100), (1.5, 110), (2.0, 120),
                   (2.5, 170)]
        self.assertEqual(20.0, neighbour.worst(samples))
        self.assertEqual(100.0, neighbour.worst(samples[:2]))

    def test_gets_what_is_left(self):
        """All of what came is counted, and nothing else."""
        wire = relay.Wire(100 << 20)
        with neighbour.Neighbour(self.temporary_dir(), wire, 1 << 20) as other:
            other.sample()
            self.eventually(
                lambda: (other.sample(), other.samples[-1][1])[1] > 100_000,
                'bytes come')
            self.assertGreater(other.mean(), 0)
