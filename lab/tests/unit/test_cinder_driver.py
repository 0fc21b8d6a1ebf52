# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

from lab.settings import TOP
from nova_dedup_migrate.tests import base

_PROGRAM = '''
from lab.services import cinder_driver
ours = cinder_driver.StorageCopyNfsDriver
(stock,) = ours.__bases__
print(stock._always_use_temp_snap_when_cloning,
      ours._always_use_temp_snap_when_cloning,
      hasattr(stock, '_copy_volume_image'), hasattr(stock, '_extend_volume'))
'''


class TestStorageCopyNfsDriver(base.TestCase):

    def test_cinder_has_what_is_overridden(self):
        """Or it would have Nova make snapshots, and nobody would notice.

        Cinder and Nova cannot be imported by one process.
        """
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', _PROGRAM], cwd=TOP,
            capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual('True False True True', done.stdout.strip(),
                         done.stderr)
