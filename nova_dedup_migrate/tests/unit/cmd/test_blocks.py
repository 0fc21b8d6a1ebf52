# SPDX-License-Identifier: Apache-2.0
"""The commands about blocks: index and similarity."""

import contextlib
import importlib.util
import io
import json
import os

from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.tests import base

BLOCK = blocks.BLOCK


class BlocksCase(base.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.conf = self.directory / 'nova.conf'
        self.conf.write_text('[DEFAULT]\nstate_path = %s\n'
                             % self.directory)

    def write(self, name, *parts):
        path = self.directory / name
        path.write_bytes(b''.join(parts))
        return str(path)

    def run_command(self, *arguments, status=0):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            self.assertEqual(status, main.main(
                ['--config-file', str(self.conf), *arguments]),
                err.getvalue())
        return err.getvalue() if status else out.getvalue()


class SimilarityTest(BlocksCase):
    def setUp(self):
        super().setUp()
        self.common = [os.urandom(BLOCK) for _ in range(3)]
        self.one = self.write('one', *self.common, os.urandom(BLOCK),
                              bytes(4 * BLOCK))
        self.two = self.write('two', *self.common[::-1], self.common[0],
                              *[os.urandom(BLOCK) for _ in range(4)])

    def test_shares(self):
        rows = json.loads(self.run_command('similarity', self.one,
                                           self.two, '-f', 'json'))
        self.assertEqual([[1.0, 0.75], [0.5, 1.0]],
                         [[row['one'], row['two']] for row in rows])
        self.assertEqual([0.5, 0.0], [row['zeros'] for row in rows])
        self.assertEqual([0.0, 0.125], [row['repeated'] for row in rows])
        self.assertIn('75.0 %', self.run_command('similarity', self.one,
                                                 self.two))

    def test_with_the_index(self):
        self.run_command('index', 'build', '--owner', 'p1', self.two)
        row, = json.loads(self.run_command(
            'similarity', self.one, '-f', 'json'))
        rows = json.loads(self.run_command(
            'similarity', self.one, 'index', '-f', 'json'))
        self.assertEqual(0.75, rows[0]['index'])
        self.assertEqual(1.0, row['one'])

    def test_heat_map(self):
        if importlib.util.find_spec('matplotlib') is None:
            self.skipTest('matplotlib is not installed')
        path = self.directory / 'map.png'
        self.run_command('similarity', self.one, self.two, '--png',
                         str(path))
        self.assertEqual(b'\x89PNG', path.read_bytes()[:4])

    def test_no_such_disk(self):
        self.assertIn('disk /nowhere is not compared', self.run_command(
            'similarity', '/nowhere', status=1))
        self.assertIn('regular file', self.run_command(
            'similarity', str(self.directory), status=1))

    def test_equal_names(self):
        (self.directory / 'x').mkdir()
        other = self.write('x/one', self.common[0])
        rows = json.loads(self.run_command('similarity', self.one, other,
                                           '-f', 'json'))
        self.assertEqual(0.25, rows[0]['one (2)'])


class IndexTest(BlocksCase):
    def test_built_and_listed(self):
        path = self.write('disk', os.urandom(2 * BLOCK), bytes(BLOCK))
        self.run_command('index', 'build', '--owner', 'p1', path)
        row, = json.loads(self.run_command('index', 'status', '-f', 'json'))
        self.assertEqual((path, 'p1', 3 * BLOCK, 2 * BLOCK), (
            row['file'], row['owner'], row['size'], row['indexed']))

    def test_no_index(self):
        self.assertIn('dedup_index', self.run_command(
            'index', 'status', status=1))

    def test_while_the_agent_runs(self):
        index = store.Index(str(self.directory / 'dedup_index'))
        self.addCleanup(index.close)
        path = self.write('disk', os.urandom(BLOCK))
        self.assertIn('in use by another process', self.run_command(
            'index', 'build', '--owner', 'p1', path, status=1))
        self.assertEqual('[]', self.run_command(
            'index', 'status', '-f', 'json').strip())

    def test_not_a_file(self):
        self.assertIn('is not indexed', self.run_command(
            'index', 'build', '--owner', 'p1', '/nowhere', status=1))
