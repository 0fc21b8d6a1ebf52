# SPDX-License-Identifier: Apache-2.0
"""Cinder's own tests of its backup drivers, with ours."""

from cinder_backup_assist.tests.cinder_functional import adopt

# With Cinder's own driver this test fails in the same way.
globals().update(adopt.adopt('posix', 'PosixBackupDriver',
                             without=('test_put_container_disabled',)))
globals().update(adopt.adopt('nfs', 'NFSBackupDriver'))
globals().update(adopt.adopt('s3', 'S3BackupDriver'))
globals().update(adopt.adopt('swift', 'SwiftBackupDriver'))
