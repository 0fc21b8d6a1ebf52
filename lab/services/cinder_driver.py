# SPDX-License-Identifier: Apache-2.0
"""The driver of the lab's volumes that are backed up while in use.

For the backup of a volume in use Cinder's NFS driver has Nova make a
snapshot: the guest gets a new file, and writes are recorded for a file.
Storage arrays and Ceph make the copy themselves, which QEMU does not see.
This one copies the file, and holes stay holes.
"""

import os

from cinder.volume.drivers import nfs
from oslo_concurrency import processutils


class StorageCopyNfsDriver(nfs.NfsDriver):
    """NfsDriver that clones without a snapshot by Nova."""

    _always_use_temp_snap_when_cloning = False

    def _copy_volume_image(self, src_path, dest_path):
        processutils.execute('cp', '--sparse=always', src_path, dest_path)
        self._set_rw_permissions(dest_path)

    def _extend_volume(self, volume, size_gb):
        os.truncate(self.local_path(volume), size_gb << 30)
