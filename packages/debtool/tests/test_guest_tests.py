# SPDX-License-Identifier: Apache-2.0

import os
from pathlib import Path
import subprocess
import tempfile
import unittest
from unittest import mock

from debtool import chroot
from debtool import guest_tests
from debtool import host


class ScriptTest(unittest.TestCase):

    def test_runs_the_program_of_its_name_in_the_system(self):
        if os.geteuid():
            self.skipTest('mounting needs root')
        with tempfile.TemporaryDirectory() as name:
            root, shared = Path(name, 'root'), Path(name, 'shared')
            shared.mkdir()
            # A system that is this machine's.
            for path in ('bin', 'lib', 'lib64', 'usr'):
                (root / path).mkdir(parents=True)
            (shared / 'file').write_text('text')
            place = Path(name, 'cat')
            place.write_text(guest_tests.script(
                root, (*map(Path, ('/bin', '/lib', '/lib64', '/usr')),
                       shared)))
            place.chmod(0o755)
            done = subprocess.run(
                [place, 'file', '/etc/hostname'], check=False,
                capture_output=True, text=True, cwd=shared)
            self.assertEqual(('text', 1), (done.stdout, done.returncode))
            self.assertIn('/etc/hostname', done.stderr)
            # The mounts are those of the program.
            self.assertEqual([], list((root / 'usr').iterdir()))


class RunTest(unittest.TestCase):

    def setUp(self):
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.system = mock.create_autospec(chroot.System, instance=True)
        self.system.directory = Path(directory, 'system')
        self.system.path.side_effect = lambda path: (
            self.system.directory / path.lstrip('/'))
        (self.system.directory / 'root').mkdir(parents=True)
        (self.system.directory / 'root/.profile').touch()
        self.log = chroot.Log(Path(directory, 'log'))
        self.started = self.enterContext(mock.patch.object(
            subprocess, 'run', autospec=True))
        self.started.return_value = subprocess.CompletedProcess(
            [], 0, '', 'OK')

    def test_uses_the_programs_of_the_system(self):
        def run(*args, env, **kwargs):
            self.assertTrue(os.access(env['DEDUP_QEMU_PATCHED'], os.X_OK))
            self.assertTrue(Path(env['DEDUP_QEMU_FAULTY']).with_name(
                'qemu-img').exists())
            return self.started.return_value

        self.started.side_effect = run
        self.assertEqual('4 tests', guest_tests.run(self.system, self.log))
        self.assertEqual(
            ['root', 'root/.profile'],
            [str(path.relative_to(self.system.directory)) for path in
             sorted(self.system.directory.rglob('*'))])

    def test_fails(self):
        self.started.return_value.returncode = 1
        self.assertRaisesRegex(host.CheckFailed, 'tests of migrations fail',
                               guest_tests.run, self.system, self.log)

    def test_skipped_is_not_passed(self):
        self.started.return_value.stderr = 'OK (skipped=1)'
        self.assertRaises(host.CheckFailed, guest_tests.run, self.system,
                          self.log)
