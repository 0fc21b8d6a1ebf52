# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
from pathlib import Path
import tempfile
import time
from unittest import mock

import testtools

from benchmarks import targets_report
from benchmarks.targets_report import Row


class TestWrite(testtools.TestCase):

    def setUp(self):
        super().setUp()
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.top = Path(scratch.name)
        for name, value in (('TOP', self.top), ('_commit', lambda: '0123abc')):
            patch = mock.patch.object(targets_report, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def write(self, *rows, arguments=()):
        with (contextlib.redirect_stdout(io.StringIO()) as out,
              mock.patch.object(targets_report.sys, 'argv',
                                ['x', *arguments])):
            good = targets_report.write('lab-x', list(rows),
                                        time.monotonic())
        path = self.top / 'build' / 'lab-x' / 'report.json'
        return good, json.loads(path.read_text()), out.getvalue()

    def test_good(self):
        good, report, out = self.write(Row('a', 1.5, 's', 'at most 2', True))
        self.assertTrue(good)
        self.assertEqual([{'name': 'a', 'value': 1.5, 'unit': 's',
                           'target': 'at most 2', 'ok': True}],
                         report['rows'])
        self.assertEqual({'commit', 'command', 'duration'},
                         set(report['made']))
        self.assertEqual('make lab-x', report['made']['command'])
        self.assertIn('yes', out)

    def test_one_is_not(self):
        good, report, out = self.write(
            Row('a', 1, 's', '', True), Row('b', None, '', '', False),
            arguments=['--quick'])
        self.assertFalse(good)
        self.assertIsNone(report['rows'][1]['value'])
        self.assertIn('NO', out)
        self.assertEqual('make lab-x ARGS="--quick"',
                         report['made']['command'])
