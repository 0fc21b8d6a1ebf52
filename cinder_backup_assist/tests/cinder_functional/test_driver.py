# SPDX-License-Identifier: Apache-2.0
"""The drivers that hold backups, in the hands of Cinder's manager."""

import importlib
import io
import os
import pathlib
import threading

from cinder import objects
from cinder.backup import manager
from cinder.backup.drivers import posix as stock_posix
from oslo_config import cfg

from cinder_backup_assist import conf as options
from cinder_backup_assist import leases
from cinder_backup_assist.driver import posix
from cinder_backup_assist.store import drivers
from cinder_backup_assist.tests.cinder_functional import real_backups

OURS = 'cinder_backup_assist.driver.posix.HeldPosixBackupDriver'
STOCK = 'cinder.backup.drivers.posix.PosixBackupDriver'


class HeldDriverTest(real_backups.BackupTestCase):

    def setUp(self):
        super().setUp()
        options.register_opts(cfg.CONF)
        self.leases = pathlib.Path(self.store).parent / 'leases'
        self.leases.mkdir()
        self.override_config('lease_directory', str(self.leases),
                             'backup_assist')
        self.addCleanup(manager.MAPPING.pop, STOCK, None)

    def make(self, fails=False):
        """Return a record and the driver that has made the backup."""
        volume = self.make_volume()
        backup = self.back_up(volume, b'x' * 100)
        backup.service = OURS
        backup.save()
        driver = posix.HeldPosixBackupDriver(self.context)
        file = io.BytesIO(self.content(1 << 18))
        if fails:
            file.close()
            self.assertRaises(ValueError, driver.backup, backup, file,
                              backup_metadata=False)
        else:
            driver.backup(backup, file, backup_metadata=False)
        # as the manager does, for any outcome
        backup.save()
        return backup, driver

    def ours(self, driver_name, backup):
        """Whether a cinder-backup with that driver takes a record."""
        self.override_config('backup_driver', driver_name)
        found = object.__new__(manager.BackupManager)
        found.driver_name = driver_name
        return found._is_our_backup(backup)

    def test_records_are_as_stock_writes_them(self):
        backup, _ = self.make()
        self.assertEqual(STOCK, backup.service)
        self.assertTrue(self.ours(OURS, backup))
        self.assertTrue(self.ours(STOCK, backup))
        self.assertFalse(self.ours(
            'cinder.backup.drivers.s3.S3BackupDriver', backup))

    def test_so_are_those_of_backups_that_fail(self):
        backup, _ = self.make(fails=True)
        backup = objects.Backup.get_by_id(self.context, backup.id)
        self.assertEqual(STOCK, backup.service)

    def test_the_daemon_serves_what_either_has_made(self):
        backup, _ = self.make()
        for name in (OURS, STOCK):
            self.override_config('backup_driver', name)
            store = drivers.BackupStore(cfg.CONF, self.context)
            self.assertTrue(store.made(backup.service))
            self.assertTrue(store.made('cinder.backup.drivers.posix'))
            self.assertFalse(store.made('cinder.backup.drivers.nfs'))
            self.assertFalse(store.made(None))
        with store.layer(backup).open(
                backup.service_metadata + '_metadata') as file:
            self.assertIn(backup.id.encode(), file.read(1 << 20))

    def test_deletion_waits_for_readers(self):
        backup, driver = self.make()
        path = self.file_of(backup, '_metadata')
        held = leases.Leases(str(self.leases))
        self.addCleanup(held.stop)
        thread = threading.Thread(target=driver.delete_backup,
                                  args=(backup,))
        with held.hold([backup.id, 'another']):
            self.assertFalse(leases.wait(str(self.leases), backup.id, 0))
            thread.start()
            thread.join(0.2)
            self.assertTrue(os.path.exists(path))
        thread.join(30)
        self.assertFalse(os.path.exists(path))
        self.assertEqual([], list(self.leases.iterdir()))

    def test_deletion_waits_no_longer_than_lease_time(self):
        self.override_config('lease_time', 0, 'backup_assist')
        backup, driver = self.make()
        path = self.objects_of(backup)[0]
        held = leases.Leases(str(self.leases))
        self.addCleanup(held.stop)
        with held.hold([backup.id]):
            driver.delete_backup(backup)
        self.assertFalse(os.path.exists(path))

    def test_the_lease_of_a_daemon_that_died_is_over(self):
        path = self.leases / 'backup.0123'
        path.touch()
        self.assertFalse(leases.wait(str(self.leases), 'backup', 0))
        past = path.stat().st_mtime - leases.EXPIRY - 1
        os.utime(path, (past, past))
        self.assertTrue(leases.wait(str(self.leases), 'backup', 0))
        self.assertFalse(path.exists())

    def test_a_directory_that_is_gone_holds_nothing(self):
        away = str(self.leases / 'away')
        self.assertTrue(leases.wait(away, 'backup', 60))
        held = leases.Leases(away)
        self.addCleanup(held.stop)
        with held.hold(['backup']):
            pass

    def test_all_are_of_the_class_that_records_name(self):
        for name, cls in (('posix', 'PosixBackupDriver'),
                          ('nfs', 'NFSBackupDriver'),
                          ('s3', 'S3BackupDriver'),
                          ('swift', 'SwiftBackupDriver')):
            try:
                module = importlib.import_module(
                    'cinder_backup_assist.driver.' + name)
            except ImportError:
                # Its client is not installed; test_cinder_suites says so.
                continue
            ours = getattr(module, 'Held' + cls)
            self.assertIn(ours.STOCK, {
                '%s.%s' % (base.__module__, base.__qualname__)
                for base in ours.__mro__})
        self.assertTrue(issubclass(posix.HeldPosixBackupDriver,
                                   stock_posix.PosixBackupDriver))
