# SPDX-License-Identifier: Apache-2.0
"""Cinder's SwiftBackupDriver, with deletions held."""

from __future__ import annotations

from cinder import interface
from cinder.backup.drivers import swift

from cinder_backup_assist.driver import held


@interface.backupdriver
class HeldSwiftBackupDriver(held.HeldBackups, swift.SwiftBackupDriver):

    STOCK = 'cinder.backup.drivers.swift.SwiftBackupDriver'
