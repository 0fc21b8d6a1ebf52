# SPDX-License-Identifier: Apache-2.0
"""The demo, small and over an unlimited link."""

import contextlib
import io
import json

from benchmarks import demo
from nova_dedup_migrate.tests import base
from testkit import qemus


class DemoTest(base.TestCase):

    timeout = 300

    def demo(self, *arguments):
        """Run it; return (exit status, what it printed, its report)."""
        directory = self.temporary_dir()
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = demo.main(['--memory', '256', '--duplicates', '35',
                                '--output', str(directory), *arguments])
        report = json.loads((directory / 'report.json').read_text())
        self.assertTrue((directory / 'bytes-over-time.png').stat().st_size)
        # what is large is gone, the logs are there
        self.assertEqual(
            set(), {p.suffix for p in directory.rglob('*')
                    if p.suffix in ('.bin', '.raw', '.qcow2')})
        for name in arguments[arguments.index('--runs') + 1].split(','):
            for side in ('source', 'destination'):
                self.assertTrue(
                    (directory / name / side / 'qemu.log').exists())
        return status, said.getvalue(), report

    def check(self, run):
        self.assertTrue(run['ram_identical'])
        self.assertTrue(run['guest_verified'])
        self.assertTrue(run['converged'])

    def test_stock(self):
        qemus.require(self, 'stock')
        status, said, report = self.demo('--link', '0', '--runs', 'stock')
        self.assertEqual(0, status)
        self.check(report['runs'][0])
        self.assertAlmostEqual(0.35, report['guest']['duplicate_share'],
                               delta=0.07)
        self.assertIn('identical to the byte', said)

    def test_both(self):
        qemus.require(self, 'stock')
        qemus.require(self, 'patched')
        status, _, report = self.demo('--link', '400', '--runs',
                                      'stock,dedup', '--format',
                                      'qcow2-backed')
        self.assertEqual(0, status)
        stock, dedup = report['runs']
        self.check(stock)
        self.check(dedup)
        self.assertEqual(0, stock['pages']['storage'])
        self.assertGreater(dedup['pages']['storage'] * 4096,
                           0.5 * report['guest']['duplicate_bytes'])
        self.assertLess(dedup['link_bytes'], stock['link_bytes'])

    def check_storage(self, storage):
        qemus.require(self, 'patched')
        status, _, report = self.demo(
            '--link', '400', '--runs', 'dedup', '--storage', storage,
            '--workload', 'pagecache-writer', '--write-rate', '2')
        self.assertEqual(0, status)
        self.check(report['runs'][0])
        return report['runs'][0]['pages']['storage']

    def test_own_copy(self):
        self.assertGreater(self.check_storage('own'), 0)

    def test_slow(self):
        self.assertGreater(self.check_storage('slow'), 0)

    def test_failing(self):
        self.assertEqual(0, self.check_storage('failing'))

    def test_gives_up_and_guest_goes_on(self):
        qemus.require(self, 'stock')
        status, said, report = self.demo('--link', '16', '--timeout', '2',
                                         '--runs', 'stock')
        self.assertEqual(0, status)
        run = report['runs'][0]
        self.assertFalse(run['converged'])
        self.assertTrue(run['guest_verified'])
        self.assertIsNone(run['ram_identical'])
