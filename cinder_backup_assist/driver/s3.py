# SPDX-License-Identifier: Apache-2.0
"""Cinder's S3BackupDriver, with deletions held."""

from __future__ import annotations

from cinder import interface
from cinder.backup.drivers import s3

from cinder_backup_assist.driver import held


@interface.backupdriver
class HeldS3BackupDriver(held.HeldBackups, s3.S3BackupDriver):

    STOCK = 'cinder.backup.drivers.s3.S3BackupDriver'
