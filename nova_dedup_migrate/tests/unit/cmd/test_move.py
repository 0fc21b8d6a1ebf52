# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate move, in an emulated cloud."""

import contextlib
import io
import json
from unittest import mock

from nova_dedup_migrate.cmd import clouds
from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.server_move import mover
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.server_move import emulated

ALL = ('one', '--host', 'compute2', '--volume-backend', emulated.NEW)


class MoveTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.connection = emulated.connection()
        for owner, name, value in (
                (clouds, 'connect', lambda: self.connection),
                (mover.time, 'sleep', lambda seconds: None)):
            patch = mock.patch.object(owner, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def run_command(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with (contextlib.redirect_stdout(out),
              contextlib.redirect_stderr(err)):
            status = main.main(['move', *arguments])
        return status, out.getvalue(), err.getvalue()

    def test_moved(self):
        status, out, _ = self.run_command(*ALL, '-f', 'json')
        self.assertEqual(0, status)
        self.assertEqual(
            [('volume', 'moved'), ('volume', 'moved'), ('server', 'moved')],
            [(row['step'], row['state']) for row in json.loads(out)])

    def test_checked(self):
        status, out, _ = self.run_command(*ALL, '--check')
        self.assertEqual(0, status)
        self.assertEqual(3, out.count('to do'))
        self.assertEqual([], self.connection.block_storage.calls)

    def test_refused(self):
        self.connection.compute.record['locked'] = True
        status, out, err = self.run_command(*ALL)
        self.assertEqual((1, ''), (status, out))
        self.assertIn('the server is locked', err)

    def test_a_goal_is_needed(self):
        status, _, err = self.run_command('one')
        self.assertEqual(1, status)
        self.assertIn('--volume-backend', err)

    def test_interrupted(self):
        self.connection.block_storage.migrate_volume = mock.Mock(
            spec=(), side_effect=KeyboardInterrupt)
        status, _, err = self.run_command(*ALL)
        self.assertEqual(1, status)
        self.assertIn('goes on', err)
