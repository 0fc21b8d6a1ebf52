# SPDX-License-Identifier: Apache-2.0
"""The benchmarks, as little of them as there is."""

import contextlib
import io
import json

import fixtures

from benchmarks import overhead
from benchmarks import runner
from benchmarks import shared_storage
from nova_dedup_migrate.tests import base
from testkit import qemus


class BenchmarksTest(base.TestCase):

    timeout = 300

    def setUp(self):
        qemus.require(self, 'stock')
        qemus.require(self, 'patched')
        super().setUp()
        self.directory = self.temporary_dir()

    def run_main(self, main, *arguments, statuses=(0,)):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = main([*arguments, '--output', str(self.directory)])
        self.assertIn(status, statuses, said.getvalue())
        return said.getvalue()

    def test_shared_storage_goes_on_where_it_was(self):
        arguments = ('--quick', '--only', '60 %, unlimited')
        # Targets are another matter: a busy machine misses some.
        self.useFixture(fixtures.MockPatchObject(runner, '_TOP',
                                                 self.directory))
        said = self.run_main(shared_storage.main, *arguments,
                             statuses=(0, 1))
        self.assertIn('[2/2]', said)
        path = self.directory / 'quick.jsonl'
        lines = path.read_text().splitlines(keepends=True)
        self.assertEqual(2, len(lines))
        # as if it had been killed during the second run
        path.write_text(lines[0] + lines[1][:40])
        said = self.run_main(shared_storage.main, *arguments,
                             statuses=(0, 1))
        rows = json.loads((self.directory / 'build' / 'bench-shared-storage'
                           / 'report.json').read_text())['rows']
        self.assertEqual(('runs that failed', 0),
                         (rows[0]['name'], rows[0]['value']))
        self.assertIn('1 of 2 runs are done', said)
        self.assertNotIn('[1/2]', said)
        report = json.loads((self.directory / 'shared-storage.json')
                            .read_text())
        cell, = report['cells']
        # No more than that: how much is saved depends on how busy the
        # machine is, as the link takes over what storage does not deliver.
        self.assertGreater(
            cell['comparisons']['dedup']['bytes_ratio']['median'], 0)
        self.assertFalse((self.directory / 'failed').exists())

    def test_overhead_without_a_guest(self):
        said = self.run_main(overhead.main, '--parts', 'ring', '--pairs',
                             '1', '--slice', '0.05')
        self.assertIn('null device, 4 KiB at random', said)
        report = json.loads((self.directory / 'overhead.json').read_text())
        for case in report['cases']:
            self.assertLessEqual(case['map']['bytes'],
                                 0.004 * case['map']['ram'])
            self.assertGreater(case['map']['pages'], 0)
