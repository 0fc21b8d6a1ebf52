# SPDX-License-Identifier: Apache-2.0
from benchmarks import compression
from benchmarks import run
from nova_dedup_migrate.tests import base
from testkit import results


def measured(name, rate=100.0, seconds=10.0, megabytes=100, **changes):
    figures = {'compressed_pages': 1000, 'compressed_bytes': 1000 * 1024,
               'compression_ns': 10_000_000, 'compression_threads': 1}
    result = run.Result(
        name, total_time_s=seconds, downtime_ms=20,
        link_bytes=megabytes * 1_000_000, ram_identical=True,
        guest_verified=True, converged=True, source_statistics=figures,
        incoming_statistics=figures)
    for field, value in changes.items():
        setattr(result, field, value)
    return compression.Measured(rate, name, result)


def cell(rate=100.0, **ours):
    times = dict(zip(compression.RIVALS, (100, 20, 30, 10, 15), strict=True))
    made = {name: measured(name, rate, seconds, seconds * 10)
            for name, seconds in times.items()}
    made[compression.BOTH] = measured(compression.BOTH, rate, **{
        'seconds': 10, **ours})
    return made


class CompressionTest(base.TestCase):

    def judged(self, *given):
        rows = results.Results('make bench-compression')
        compression.judge(rows, *given)
        return rows

    def test_good(self):
        rows = self.judged(cell())
        self.assertEqual(0, rows.status(), rows.text())

    def test_not_fast_enough(self):
        rows = self.judged(cell(seconds=13.0))
        self.assertEqual(['100 Mbit/s: time of dedup + zstd over stock '
                          'multifd + zstd'],
                         [row.name for row in rows.rows if not row.ok])

    def test_memory_differs(self):
        self.assertEqual(1, self.judged(cell(ram_identical=False)).status())
        self.assertEqual(1, self.judged(cell(guest_verified=False)).status())

    def test_fast_link(self):
        """What is gained does not count, only what is lost."""
        self.assertEqual(0, self.judged(cell(0.0, seconds=31.0)).status())
        self.assertEqual(1, self.judged(cell(0.0, seconds=32.0)).status())

    def test_a_way(self):
        rows = results.Results('make bench-compression')
        compression.judge_way(rows, measured('level 1, 1 threads'))
        self.assertEqual(0, rows.status())
        speed = rows.rows[-1]
        self.assertEqual(410, speed.value)

    def test_a_way_that_compressed_nothing(self):
        rows = results.Results('make bench-compression')
        compression.judge_way(rows, measured('x', source_statistics={}))
        self.assertEqual(1, rows.status())

    def test_tables(self):
        text = compression.tables([cell()], [measured('level 1, 1 threads')])
        self.assertIn('dedup + zstd', text)
        self.assertIn('level 1, 1 threads', text)

    def test_runs_that_failed(self):
        """Without figures there is still a table."""
        text = compression.tables(
            [{name: measured(name, total_time_s=None, link_bytes=1,
                             source_statistics=None,
                             incoming_statistics=None)
              for name in compression.RIVALS}], [])
        self.assertIn('inf', text)
