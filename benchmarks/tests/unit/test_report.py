# SPDX-License-Identifier: Apache-2.0
import json

from benchmarks import content
from benchmarks import options
from benchmarks import report
from benchmarks import run
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.tests import base


def result(name, **fields):
    fields = {'total_time_s': 20.0, 'downtime_ms': 9,
              'link_bytes': 300_000_000, 'ram_identical': True,
              'guest_verified': True, 'converged': True,
              'pages': progress.PagePaths(peer=100, zero=50, storage=0),
              **fields}
    return run.Result(name, **fields)


def both():
    return [result('stock', content=content.Content(1000, 600, 400)),
            result('dedup', total_time_s=5.0, link_bytes=90_000_000)]


class ReportTest(base.TestCase):

    def test_exactly_these_keys(self):
        built = report.build(both(), options.Options())
        self.assertEqual({'runs', 'limit', 'guest', 'options'}, set(built))
        self.assertEqual(
            {'name', 'total_time_s', 'downtime_ms', 'link_bytes', 'pages',
             'digest_failures', 'ram_identical', 'guest_verified',
             'converged'}, set(built['runs'][0]))
        self.assertEqual({'peer': 100, 'zero': 50, 'storage': 0},
                         built['runs'][1]['pages'])
        json.dumps(built)
        json.dumps(report.details(both()))

    def test_limit(self):
        built = report.build(both(), options.Options(link=8.0))
        self.assertEqual({'unique_bytes': 200 * 4096,
                          'link_bytes_per_s': 1_000_000, 'time_s': 0.819},
                         built['limit'])

    def test_no_limit_without_a_rate_or_a_comparison(self):
        self.assertIsNone(report.limit(5, None)['time_s'])
        self.assertIsNone(report.limit(None, 5)['time_s'])

    def test_table(self):
        text = report.table(report.build(both(), options.Options()))
        self.assertRegex(text, r'total time, s +20\.00 +5\.00 +0\.25')
        self.assertRegex(text, r'link, MB +300\.0 +90\.0 +0\.30 +0\.8')
        self.assertRegex(text, r'identical to the byte +yes +yes')

    def test_table_of_one_run_that_did_not_converge(self):
        one = result('stock', converged=False, ram_identical=None,
                     downtime_ms=None)
        text = report.table(report.build([one], options.Options()))
        self.assertRegex(text, r'converged +NO')
        self.assertRegex(text, r'downtime, ms +-')

    def test_failures(self):
        self.assertEqual([], report.failures(both()))
        bad = [result('dedup', ram_identical=False, differing_pages=3),
               result('stock', guest_verified=False, guest_error='vda/f1')]
        first, second = report.failures(bad)
        self.assertIn('3 pages', first)
        self.assertIn('vda/f1', second)
        # not having compared is no difference
        self.assertEqual([], report.failures(
            [result('stock', ram_identical=None, converged=False)]))
