# SPDX-License-Identifier: Apache-2.0
"""Identity on real mounts.

Requires root, mount namespaces and loop devices; skipped where they are
not to be had.  Two hosts are two mounts.
"""

import json
import os
import shutil
import subprocess
import sys

from nova_dedup_migrate.tests import base

ASK = 'nova_dedup_migrate.tests.functional.agent.ask'
NOBODY = '65534'


class MountsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        if os.geteuid() != 0:
            self.skipTest('mounting needs root')
        done = subprocess.run(['unshare', '--mount', 'true'],
                              capture_output=True, check=False)
        if done.returncode:
            self.skipTest('no mount namespaces: %s' % done.stderr.decode())
        self.directory.chmod(0o755)
        self.one, self.two = self.directory / 'one', self.directory / 'two'
        for mount in (self.one, self.two):
            mount.mkdir()
        self.disk = self.one / 'disk'

    def ask(self, script, *arguments, disk=None, destination=None):
        """Run a shell script in a mount namespace, then ask."""
        done = subprocess.run(
            ['unshare', '--mount', '--propagation', 'private', 'sh', '-euc',
             'cd "$1"; shift; %s\nexec "$@"' % script, 'sh',
             str(self.directory), sys.executable, '-W', 'ignore', '-m', ASK,
             str(disk or self.disk),
             str(destination or self.two / 'disk'), str(self.directory),
             *arguments],
            capture_output=True, text=True, check=False, timeout=60,
            env={**os.environ, 'PYTHONPATH': ':'.join(sys.path)})
        if 'loop' in script and 'loop' in done.stderr:
            self.skipTest('no loop devices: %s' % done.stderr)
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout)

    def write(self):
        self.disk.write_bytes(os.urandom(1 << 20))

    def test_same_directory_mounted_elsewhere(self):
        self.write()
        found = self.ask('mount --bind one two')
        self.assertEqual('shared', found['copy'])
        self.assertEqual(['disk'], os.listdir(self.one))

    def test_copy(self):
        self.write()
        shutil.copy(self.disk, self.two)
        self.assertEqual('own', self.ask('true')['copy'])

    def test_one_directory_and_another_file(self):
        """The challenge is seen there, and the image is a copy."""
        self.write()
        shutil.copy(self.disk, self.directory / 'copy')
        found = self.ask('mount --bind one two; mount --bind copy two/disk')
        self.assertEqual('own', found['copy'])

    def file_system(self):
        """Return the commands that make one with a disk, at one."""
        for tool in ('mkfs.ext4', 'losetup'):
            if shutil.which(tool) is None:
                self.skipTest('%s is not installed' % tool)
        return '''
            truncate -s 16M fs1; mkfs.ext4 -q fs1
            mount -o loop fs1 one
            head -c 1000000 /dev/urandom > one/disk
'''

    def test_clone_of_the_whole_file_system(self):
        """Same path, content, size and inode number, and not the same."""
        found = self.ask(self.file_system() + '''
            umount one
            cp fs1 fs2
            mount -o loop fs1 one; mount -o loop fs2 two
            test "$(stat -c %i one/disk)" = "$(stat -c %i two/disk)"
            cmp one/disk two/disk''')
        self.assertEqual('own', found['copy'])
        self.assertIn('challenge is not beside it', found['reason'])

    def test_file_system_mounted_twice(self):
        found = self.ask(self.file_system() + '''
            mount --bind one two''')
        self.assertEqual('shared', found['copy'])

    def test_read_only_mount(self):
        self.write()
        found = self.ask('mount --bind one two;'
                         ' mount -o remount,bind,ro two')
        self.assertEqual('shared', found['copy'])

    def test_privileged_helper(self):
        """A disk that belongs to QEMU's user, in a directory of root."""
        self.write()
        self.disk.chmod(0o600)
        found = self.ask('mount --bind one two', NOBODY)
        self.assertEqual('shared', found['copy'])
        self.assertTrue(found['locked'])
        self.assertIn('cannot write beside it', found['note'])
