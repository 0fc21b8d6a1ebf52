# SPDX-License-Identifier: Apache-2.0
"""Cinder's PosixBackupDriver, with deletions held."""

from __future__ import annotations

from cinder import interface
from cinder.backup.drivers import posix

from cinder_backup_assist.driver import held


@interface.backupdriver
class HeldPosixBackupDriver(held.HeldBackups, posix.PosixBackupDriver):

    STOCK = 'cinder.backup.drivers.posix.PosixBackupDriver'
