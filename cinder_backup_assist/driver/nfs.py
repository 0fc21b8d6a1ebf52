# SPDX-License-Identifier: Apache-2.0
"""Cinder's NFSBackupDriver, with deletions held."""

from __future__ import annotations

from cinder import interface
from cinder.backup.drivers import nfs

from cinder_backup_assist.driver import held


@interface.backupdriver
class HeldNFSBackupDriver(held.HeldBackups, nfs.NFSBackupDriver):

    STOCK = 'cinder.backup.drivers.nfs.NFSBackupDriver'
