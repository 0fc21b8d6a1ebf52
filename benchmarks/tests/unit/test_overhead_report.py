# SPDX-License-Identifier: Apache-2.0
import json

from benchmarks import overhead
from benchmarks import overhead_report
from benchmarks import pairs
from nova_dedup_migrate.tests import base

RAM = 512 << 20


def case(ratio, n=20, part='ring', **more):
    off = pairs.Slice(1.0, 0.5, 1e9, 1000)
    on = pairs.Slice(1.0, 0.6, 1e9 * ratio, 1000)
    return overhead.Case(part, 'reads', [pairs.Pair(off, on)] * n, **more)


class OverheadReportTest(base.TestCase):

    def outcome(self, *ratios):
        found = pairs.estimate(list(ratios))
        return overhead_report.outcome(
            {'low': found.low, 'high': found.high})

    def test_outcome(self):
        self.assertEqual('yes', self.outcome(*[0.995] * 6))
        self.assertEqual('no', self.outcome(*[0.95] * 6))
        self.assertEqual('cannot be told', self.outcome(
            0.9, 0.95, 1.0, 1.0, 1.05, 1.1))
        self.assertEqual('too few pairs', self.outcome(1.0, 1.0))

    def test_report(self):
        report = overhead_report.build(
            [case(0.999, map={'pages': 10, 'bytes': RAM // 500,
                              'ram': RAM}),
             case(0.9, map={'pages': 10, 'bytes': RAM // 100, 'ram': RAM}),
             case(1.0, n=3, part='boot')], 'make it')
        text = overhead_report.text(report)
        self.assertIn('1000 MB/s', text)
        self.assertIn('0.200%', text)
        self.assertEqual(['yes', 'no', 'too few pairs'],
                         [one['outcome'] for one in report['cases']])
        directory = self.temporary_dir()
        overhead_report.write(report, directory)
        self.assertEqual(report, json.loads(
            (directory / 'overhead.json').read_text()))
        self.assertIn('make it', (directory / 'overhead.inc').read_text())
        self.assertTrue((directory / 'overhead.svg').exists())
