# SPDX-License-Identifier: Apache-2.0
"""Disks of QEMU's user, read with the one capability of the systemd unit.

Requires root and setpriv, to become somebody else; skipped without.
"""

import os
import pathlib
import shutil
import subprocess
import sys

from nova_dedup_migrate.tests import base

UNIT = (pathlib.Path(__file__).parents[4]
        / 'etc/systemd/nova-dedup-migrate-agent.service')
PROGRAM = '''
import sys
from nova_dedup_migrate.images import access
print(access.sample(sys.argv[1], (sys.argv[2],), '0' * 64))
'''


class CapabilityTest(base.TestCase):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or shutil.which('setpriv') is None:
            self.skipTest('it needs root and setpriv (util-linux)')
        directory = self.temporary_dir() / 'instance'
        directory.mkdir()
        self.disk = directory / 'disk'
        self.disk.write_bytes(os.urandom(1 << 16))
        self.disk.chmod(0o600)
        directory.chmod(0o700)
        directory.parent.chmod(0o755)

    def run_with(self, capabilities, *command):
        """Run a command as a user who has these and cannot get more."""
        sets = ','.join(['-all', *('+' + name for name in capabilities)])
        return subprocess.run(
            ['setpriv', '--reuid', '65534', '--regid', '65534',
             '--clear-groups', '--no-new-privs', '--inh-caps', sets,
             '--ambient-caps', sets, *command],
            capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, 'PYTHONPATH': ':'.join(sys.path)})

    def test_with_the_capability_of_the_unit(self):
        line = next(line for line in UNIT.read_text().splitlines()
                    if line.startswith('AmbientCapabilities='))
        names = line.partition('=')[2].lower().replace('cap_', '').split()
        done = self.run_with(names, sys.executable, '-W', 'ignore', '-c',
                             PROGRAM, str(self.disk), str(self.disk.parent))
        self.assertEqual((0, 64), (done.returncode,
                                   len(done.stdout.strip())), done.stderr)

    def test_without(self):
        done = self.run_with([], 'cat', str(self.disk))
        self.assertIn('Permission denied', done.stderr)
