# SPDX-License-Identifier: Apache-2.0
"""Names of file systems."""

import os
from unittest import mock

from nova_dedup_migrate.identity import filesystem
from nova_dedup_migrate.tests import base

MOUNTS = '''\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:50 / /var/lib/nova/instances rw - nfs4 nas:/export/vms rw,vers=4.2
31 22 0:51 / /mnt/a\\040b rw master:2 shared:9 - fuse.glusterfs nas:/v rw
'''


class FilesystemTest(base.TestCase):
    def describe(self, major, minor):
        with mock.patch.object(filesystem, 'open', create=True,
                               new=mock.mock_open(read_data=MOUNTS)):
            return filesystem.describe(os.makedev(major, minor))

    def test_network(self):
        self.assertEqual('nfs4 nas:/export/vms', self.describe(0, 50))
        self.assertEqual('fuse.glusterfs nas:/v', self.describe(0, 51))

    def test_local(self):
        self.assertIsNone(self.describe(8, 1))

    def test_unknown(self):
        self.assertIsNone(self.describe(0, 5))

    def test_real(self):
        self.assertIsNone(filesystem.describe(os.stat('/proc').st_dev))
