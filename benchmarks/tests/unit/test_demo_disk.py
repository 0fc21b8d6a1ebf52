# SPDX-License-Identifier: Apache-2.0
import importlib.util
import io
import json
import unittest
from unittest import mock

import fixtures

if not all(map(importlib.util.find_spec, ('cryptography', 'nbd'))):
    raise unittest.SkipTest('cryptography or nbd is not installed')

from benchmarks import demo_disk
from benchmarks import disk_moves
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.tests import base


class DemoDiskTest(base.TestCase):

    def run_(self, outcomes):
        """Return the exit status, what is printed, and the errors."""
        self.top = self.temporary_dir()
        cell = mock.Mock(run=mock.Mock(side_effect=outcomes))
        with (mock.patch.object(disk_moves, 'Cell', autospec=True,
                                return_value=cell),
              fixtures.MonkeyPatch('sys.stdout', io.StringIO()) as out,
              fixtures.MonkeyPatch('sys.stderr', io.StringIO()) as wrong):
            status = demo_disk.main(['--disk', '--output', str(self.top)])
        return status, out.new_value.getvalue(), wrong.new_value.getvalue()

    def outcome(self, **given):
        return disk_moves.Outcome(**{
            'mirrored': 1_000_000, 'total': 1.0, 'identical': True,
            'requests': 1.0, **given})

    def test_three_times(self):
        status, out, wrong = self.run_([
            self.outcome(mirrored=90_000_000),
            self.outcome(sources={'zero': 5_000_000}), self.outcome()])
        self.assertEqual((0, ''), (status, wrong))
        self.assertIn('MB zeros', out)
        self.assertNotIn('missed', out)
        self.assertTrue(json.loads(
            (self.top / 'report.json').read_text())['rows'])

    def test_what_is_missed_is_shown(self):
        status, out, _ = self.run_([self.outcome(), self.outcome(),
                                    self.outcome(mirrored=1,
                                                 identical=False)])
        self.assertEqual(1, status)
        self.assertIn('DIFFERENT', out)
        self.assertIn('missed: 100 Mbit/s, one guest, snapshot: runs whose '
                      'disks are equal: 0, not 1', out)

    def test_errors_are_one_line(self):
        for error, text in (
                (RuntimeError('the storage does not start'),
                 'the storage does not start'),
                (OSError(28, 'No space left on device', '/x'),
                 "[Errno 28] No space left on device: '/x'"),
                (errors.TargetFailed(path='/x', reason='why'),
                 str(errors.TargetFailed(path='/x', reason='why'))),
                (RuntimeError(), 'RuntimeError')):
            status, _, wrong = self.run_([self.outcome(), error])
            self.assertEqual((1, '\ndemo: %s\n' % text), (status, wrong))

    def test_interrupted(self):
        status, _, wrong = self.run_([KeyboardInterrupt()])
        self.assertEqual((130, '\ndemo: interrupted\n'), (status, wrong))
