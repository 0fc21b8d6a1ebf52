# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate swap list and swap abort."""

import contextlib
import dataclasses
import io
import json
import os
import time
from unittest import mock

from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.cmd import swaps
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.tests import base

INSTANCE = '22222222-0000-4000-8000-000000000002'
OLD = '33333333-0000-4000-8000-000000000003'
NEW = '44444444-0000-4000-8000-000000000004'
SWAP = operations.Swap(INSTANCE, 'vdb', OLD, NEW, '/x', began=1e9,
                       phase=operations.MIRRORING)


class SwapCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.kept = operations.SwapOperations(str(self.directory / 'swaps'))
        self.conf = self.directory / 'nova.conf'
        self.conf.write_text('[dedup_migrate]\nvolumes_path = %s\n'
                             % self.directory)

    def run_command(self, *arguments):
        """Return exit status, standard output and standard error."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main.main(['--config-file', str(self.conf), 'swap',
                                *arguments])
        return status, out.getvalue(), err.getvalue()


class SwapListTest(SwapCase):

    def list(self):
        status, out, _ = self.run_command('list', '-f', 'json')
        self.assertEqual(0, status)
        return json.loads(out)

    def test_the_newest_comes_first(self):
        self.kept.write(operations.Swap(INSTANCE, 'vda', 'old', 'new', '/x',
                                        began=1e9))
        self.kept.write(operations.Swap(
            INSTANCE, 'vdb', 'old', 'new', '/x', began=2e9, seconds=3.0,
            size=30, sources={'backup': 6, 'agents': 4, 'zero': 15,
                              'volume': 5}, outcome='filled',
            phase=operations.PIVOTED))
        # Something else of an administrator's.
        (self.directory / 'swaps/x.json').write_text('{"disk": 1}')
        # One of an earlier release.
        (self.directory / 'swaps/y.json').write_text(json.dumps({
            **dataclasses.asdict(operations.Swap(
                INSTANCE, 'vdc', 'old', 'new', '/x')), 'sampled': 7}))
        rows = self.list()
        self.assertEqual(['vdb', 'vda', 'vdc'], [row['disk'] for row in rows])
        self.assertEqual((30, 6, 4, 15, 5), tuple(
            rows[0][name] for name in ('size', 'from_backup', 'from_agents',
                                       'zeros', 'from_volume')))
        self.assertEqual((3.0, None), (rows[0]['time'], rows[0]['done']))
        self.assertIsNone(rows[1]['from_backup'])

    def test_one_that_is_under_way(self):
        self.kept.write(dataclasses.replace(
            SWAP, began=time.time(), done=10, total=40,
            sources={'backup': 60, 'volume': 10}))
        (row,) = self.list()
        self.assertEqual(('mirroring', 0.25, 60, 10, ''), tuple(
            row[name] for name in ('phase', 'done', 'from_backup',
                                   'from_volume', 'outcome')))
        self.assertGreater(row['time'], 0)


class SwapAbortTest(SwapCase):

    def abort(self, *more):
        return self.run_command('abort', INSTANCE, OLD, *more)

    def becomes(self, **changes):
        """nova-compute writes this when it sees a request."""
        def pause(_):
            self.assertTrue(self.kept.is_abort_requested(SWAP))
            self.kept.write(dataclasses.replace(SWAP, **changes))

        patch = mock.patch.object(swaps.time, 'sleep', autospec=True,
                                  side_effect=pause)
        patch.start()
        self.addCleanup(patch.stop)

    def test_aborted(self):
        # one of another disk, and of another instance
        self.kept.write(dataclasses.replace(SWAP, disk='vda',
                                            old_volume='x'))
        self.kept.write(dataclasses.replace(SWAP, instance='x'))
        self.kept.write(SWAP)
        self.becomes(outcome='failed: it was aborted')
        self.assertEqual(0, self.abort()[0])

    def test_nothing_moves(self):
        status, _, err = self.abort()
        self.assertEqual(1, status)
        self.assertIn('on the host of the instance', err)
        self.kept.write(dataclasses.replace(SWAP, outcome='all copied'))
        status, _, err = self.abort()
        self.assertEqual(1, status)
        self.assertIn('is over: all copied', err)
        self.assertFalse(self.kept.is_abort_requested(SWAP))

    def test_too_late(self):
        self.kept.write(SWAP)
        self.becomes(outcome='copied', phase=operations.PIVOTED)
        status, _, err = self.abort()
        self.assertEqual(1, status)
        self.assertIn('it was over before that: copied', err)

    def test_nova_compute_does_not_see_it(self):
        self.kept.write(SWAP)
        status, _, err = self.abort('--timeout', '0')
        self.assertEqual(1, status)
        self.assertIn('The request stays', err)
        self.assertTrue(self.kept.is_abort_requested(SWAP))

    def test_a_request_that_cannot_be_written(self):
        self.kept.write(SWAP)
        with mock.patch.object(os, 'open', autospec=True,
                               side_effect=PermissionError('no')):
            status, _, err = self.abort()
        self.assertEqual(1, status)
        self.assertIn('cannot be written', err)

    def test_names_are_not_taken(self):
        with self.assertRaises(SystemExit):
            self.run_command('abort', 'web1', OLD)
