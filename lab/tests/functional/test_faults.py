# SPDX-License-Identifier: Apache-2.0
"""Faults that need no more of a lab than a host."""

import os
import shutil
import unittest
from unittest import mock

try:
    from lab.hosts import lab as labs
except ImportError as error:
    raise unittest.SkipTest('labs cannot be tested: %s' % error) from error

from lab import cloud as clouds
from lab import errors
from lab import faults
from lab import settings
from nova_dedup_migrate.tests import base

DIRECTORY = '/var/lib/nova/instances'
UUID = '22222222-0000-4000-8000-000000000002'


class DiskFullTest(base.TestCase):
    """The disks of a host are in a file system that has no space."""

    def setUp(self):
        super().setUp()
        reason = labs.missing()
        if reason is None and shutil.which('mkfs.ext4') is None:
            reason = 'mkfs.ext4 is not installed'
        if reason is not None:
            self.skipTest(reason)
        lab = labs.Lab(labs.unique_name('f'), ephemeral=True).create()
        self.addCleanup(lab.destroy)
        self.host = lab.add_host('compute1')
        self.host.private('/var/lib/nova')
        for directory in (DIRECTORY, '/var/lib/libvirt/qemu',
                          '/var/log/libvirt/qemu'):
            self.host.private(directory)
        self.instances = self.host.root / DIRECTORY.lstrip('/')
        cloud = mock.create_autospec(clouds.Cloud, instance=True)
        cloud.settings = settings.Settings('local')
        cloud.computes = [self.host]
        self.scene = faults.Scene(cloud, None, UUID, None, self.host)
        self.fault = faults.FAULTS['disk-full-destination']

    def write(self, name, size):
        """Write a disk; return whether there was space."""
        done = self.host.run(
            ['dd', 'if=/dev/zero', 'of=%s/%s' % (DIRECTORY, name), 'bs=1M',
             'count=%d' % (size >> 20)], check=False)
        self.assertEqual('No space left' in done.stderr,
                         bool(done.returncode))
        return not done.returncode

    def test_what_is_removed_meanwhile_is_gone(self):
        with self.fault.around(self.scene.cloud):
            (self.instances / UUID).mkdir()
            self.assertTrue(self.write(UUID + '/disk', 4 << 20))
            self.fault.inject(self.scene)
            self.assertTrue((self.instances / UUID / 'disk').exists())
            self.assertFalse(self.write('other', 4 << 20))
            self.assertLessEqual(
                os.statvfs(self.instances).f_bavail, 4096)
            self.host.run(['rm', '-r', '%s/%s' % (DIRECTORY, UUID)])
            self.fault.undo(self.scene)
            self.assertFalse((self.instances / UUID).exists())
            self.assertTrue(self.write('other', 4 << 20))
        # nothing is left of it
        self.assertEqual([], os.listdir(self.instances))
        self.assertFalse((self.host.directory / 'instances.img').exists())

    def test_instances_are_not_hidden(self):
        (self.instances / UUID).mkdir()
        context = self.fault.around(self.scene.cloud)
        error = self.assertRaises(errors.LabError, context.__enter__)
        self.assertIn('compute1 has instances', str(error))
