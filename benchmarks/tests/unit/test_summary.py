# SPDX-License-Identifier: Apache-2.0
import json

from benchmarks import cells
from benchmarks import publish
from benchmarks import rst
from benchmarks import summary
from nova_dedup_migrate.tests import base


def record(total, sent, pause, **more):
    return {'repeat': 0, 'total_time_s': total, 'link_bytes': sent,
            'downtime_ms': pause, 'converged': True, 'rounds': 2,
            'pages': {'peer': 1, 'zero': 2, 'storage': 3},
            'neighbours': 0.1, 'when': '2026-01-01T00:00:00+00:00',
            'storage_bytes_per_s': 100e6, **more}


def runs(stock, dedup):
    return {'stock': stock, 'dedup': dedup}


def dedup_record(total, sent, pause, **more):
    return record(total, sent, pause,
                  **{'unique_bytes': 25e6, 'duplicate_bytes': 40.96e6,
                     **more})


class SummaryTest(base.TestCase):

    def setUp(self):
        super().setUp()
        every = {cell.name: cell for cell in cells.full()}
        self.cell = every['grid: 60 %, 200/500']
        self.writer = every['applications: Admin I, 200/500']

    def build(self, measured, cell=None):
        cell = cell or self.cell
        return summary.build([cell], {cell.name: measured}, 'make it')

    def compared(self, report):
        return report['cells'][0]['comparisons']['dedup']

    def test_a_cell_that_reaches_all(self):
        report = self.build(runs([record(4.0, 70e6, 10)],
                                 [dedup_record(1.0, 25.1e6, 12)]))
        found = self.compared(report)
        # 25 MB at the 25 MB/s the first round starts with
        self.assertEqual(1.0, found['bound_s'])
        self.assertEqual(0.25, found['ratio']['median'])
        self.assertEqual({'time', 'link_bytes', 'downtime', 'total'},
                         set(found['targets']))
        for name, outcome in found['targets'].items():
            self.assertTrue(outcome['reached'], name)
        self.assertEqual((1, 1), summary.tally(report)['time'])
        self.assertEqual([], summary.failures(report))

    def test_misses_are_said(self):
        report = self.build(runs([record(1.0, 70e6, 10)],
                                 [dedup_record(1.2, 60e6, 50)]))
        for outcome in self.compared(report)['targets'].values():
            self.assertFalse(outcome['reached'])
        text = publish.text(report)
        self.assertIn('no, +14%', text)      # 1.2 s instead of 1.05 s
        self.assertIn('no, +30 ms', text)

    def test_ratio_is_of_pairs(self):
        first = [record(1.0, 1, 1), record(3.0, 1, 1, repeat=1)]
        second = [dedup_record(1.5, 1, 1, repeat=1),
                  dedup_record(0.5, 1, 1)]
        found = self.compared(self.build(runs(first, second)))
        self.assertEqual({'median': 0.5, 'low': 0.5, 'high': 0.5, 'n': 2},
                         found['ratio'])

    def test_failed_runs_count_as_failed_only(self):
        report = self.build(runs(
            [record(4.0, 70e6, 10)],
            [dedup_record(1.0, 25e6, 12),
             {'repeat': 1, 'failed': 'OSError: full',
              'when': '2026-01-01T00:00:01+00:00',
              'storage_bytes_per_s': 1.0}]))
        dedup = report['cells'][0]['variants']['dedup']
        self.assertEqual(1, dedup['total_time_s']['n'])
        self.assertEqual(['OSError: full'], dedup['failed'])
        self.assertEqual(1, len(summary.failures(report)))
        self.assertIn('OSError: full', publish.text(report))

    def test_all_failed(self):
        failed = {'repeat': 0, 'failed': 'x',
                  'when': '2026-01-01T00:00:00+00:00',
                  'storage_bytes_per_s': 1.0}
        report = self.build(runs([failed], [failed]))
        self.assertIn('failed', publish.text(report))

    def test_a_reference_that_never_ends(self):
        report = self.build(runs(
            [record(240.0, 9e9, None, converged=False)],
            [dedup_record(24.0, 25e6, 12)]))
        self.assertIn('>240.0', publish.text(report))
        self.assertIn('<0.10', publish.text(report))

    def test_time_of_a_writer_is_no_goal(self):
        report = self.build(runs([record(9.0, 70e6, 10)],
                                 [dedup_record(8.0, 60e6, 10)]),
                            self.writer)
        self.assertEqual((0, 0), summary.tally(report)['time'])
        self.assertEqual((1, 1), summary.tally(report)['total'])
        self.assertIn('171.4 / 72.6', publish.text(report))

    def test_compression_is_compared_with_ours_without(self):
        every = {cell.name: cell for cell in cells.full()}
        report = self.build(
            {'dedup': [dedup_record(2.0, 40e6, 10)],
             'dedup, compressed': [dedup_record(
                 1.0, 10e6, 11, source_cost_s=2.5, incoming_cost_s=0.75)]},
            every['compression: 35 %, 10 GbE'])
        found = report['cells'][0]['comparisons']
        self.assertEqual(['dedup, compressed'], list(found))
        self.assertEqual(
            0.5, found['dedup, compressed']['targets']['total']['value'])
        text = publish.text(report)
        for shown in '0.50', '0.25', '2.50', '0.75', 'yes':
            self.assertIn(shown, text)

    def test_link_rate_of_an_unlimited_link_is_stocks(self):
        cell = {c.name: c for c in cells.full()}['grid: 10 %, unlimited']
        self.assertEqual((50e6, 'stock'),
                         summary.link_rate(cell, [record(2.0, 100e6, 1)]))
        self.assertIsNone(summary.link_rate(cell, []))

    def test_published(self):
        directory = self.temporary_dir() / 'new'
        report = self.build(runs([record(4.0, 70e6, 10)],
                                 [dedup_record(1.0, 25e6, 12)]))
        publish.write(report, directory)
        self.assertEqual(
            json.loads(json.dumps(report)),
            json.loads((directory / 'shared-storage.json').read_text()))
        made = (directory / 'shared-storage-made.inc').read_text()
        self.assertIn('make it', made)
        self.assertTrue((directory / 'shared-storage-grid-time.svg').exists())

    def test_simple_table(self):
        self.assertEqual('=  ==\na  b\n=  ==\n\\  cc\n=  ==',
                         rst.simple(['a', 'b'], [['', 'cc']]))
