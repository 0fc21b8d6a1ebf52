# SPDX-License-Identifier: Apache-2.0
"""cinder-backup-assist as a program, without what tests have imported."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

# The driver opens the database, which is a file below state_path by default.
_CONF = '''[DEFAULT]
state_path = {directory}
backup_driver = {driver}
backup_posix_path = {directory}
[backup_assist]
'''


class CommandTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def run_with(self, driver):
        conf = pathlib.Path(self.directory.name, 'cinder.conf')
        conf.write_text(_CONF.format(
            driver=driver, directory=self.directory.name))
        return subprocess.run(
            [sys.executable, '-m', 'cinder_backup_assist.cmd',
             '--config-file', str(conf)], timeout=120, check=False,
            capture_output=True, text=True)

    def test_it_reads_the_driver_of_cinder(self):
        """It comes as far as the certificates, which are missing."""
        done = self.run_with(
            'cinder.backup.drivers.posix.PosixBackupDriver')
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertIn('certificate', done.stderr.splitlines()[-1])

    def test_a_driver_that_cannot_be_served(self):
        done = self.run_with('cinder.backup.drivers.ceph.CephBackupDriver')
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertIn('CephBackupDriver cannot be served',
                      done.stderr.splitlines()[-1])
