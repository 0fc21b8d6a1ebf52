# SPDX-License-Identifier: Apache-2.0
"""The backup driver of this host, for reading.

It is the class that backup_driver of cinder.conf names, so that all of
Cinder's options of the store hold here, too.  Drivers that mount a share
are kept from doing so, and from changing its owner and rights:
cinder-backup has done it.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from typing import BinaryIO

from cinder.backup import chunkeddriver
from os_brick.remotefs import remotefs
from oslo_config import cfg
from oslo_utils import importutils

from cinder_backup_assist import errors
from cinder_backup_assist.blockmap import chain
from cinder_backup_assist.store import files

#: Drivers of shares, by base class: (kind of os-brick, option of the share).
_SHARES = {
    'cinder.backup.drivers.nfs.NFSBackupDriver': ('nfs', 'backup_share'),
    'cinder.backup.drivers.glusterfs.GlusterfsBackupDriver': (
        'glusterfs', 'glusterfs_backup_share'),
}
_SWIFT = 'cinder.backup.drivers.swift.SwiftBackupDriver'


class BackupStore:
    """Reads the files of backups, for several threads.

    Each thread has a driver of its own, because the clients of Swift and
    GCS are for one thread.

    :param conf: Cinder's options
    :param context: of an administrator
    :raises DriverRefused: its backups cannot be served
    """

    def __init__(self, conf: cfg.ConfigOpts, context: Any) -> None:
        self.driver_name = conf.backup_driver
        try:
            cls = importutils.import_class(self.driver_name)
        except ImportError as error:
            raise self._refused('it cannot be imported: %s' % error
                                ) from error
        if not issubclass(cls, chunkeddriver.ChunkedBackupDriver):
            raise self._refused(
                'only chunked drivers (posix, NFS, S3, Swift, GCS) have '
                'SHA-256 of the blocks')
        self._classes = {'%s.%s' % (base.__module__, base.__qualname__)
                         for base in cls.__mro__}
        if (_SWIFT in self._classes
                and conf.backup_swift_auth != 'single_user'):
            raise self._refused(
                'it uses the token of each user. Set backup_swift_auth to '
                'single_user')
        for name in self._classes & set(_SHARES):
            cls = _without_mounting(cls, conf, *_SHARES[name])
        self._cls = cls
        self._context = context
        self._local = threading.local()
        # boto3 makes one client at a time.
        self._making = threading.Lock()
        self._driver()

    def made(self, service: str | None) -> bool:
        """Return whether this driver has made backups of a service."""
        # Old records have the module's name.
        return bool(service) and any(
            name == service or name.rpartition('.')[0] == service
            for name in self._classes)

    def layer(self, backup: Any) -> chain.Layer:
        """Return a backup for blockmap.

        :param backup: Cinder's object
        :raises BackupRefused: its place is none of a backup
        """
        for value in (backup.container, backup.service_metadata):
            if (not value or os.path.isabs(value)
                    or '..' in value.split('/') or '\0' in value):
                raise errors.BackupRefused(
                    backup_id=backup.id,
                    reason='its container is %.200r and its prefix %.200r'
                    % (backup.container, backup.service_metadata))
        return chain.Layer(
            backup.id, backup.volume_id, backup.parent_id,
            backup.service_metadata,
            lambda name: self.open(backup, name))

    def open(self, backup: Any, name: str, extra: Any = None) -> BinaryIO:
        """Open a file of a backup, for this thread.

        :raises StoreFailed:
        """
        try:
            driver = self._driver()
        except errors.DriverRefused as error:
            raise errors.StoreFailed(name=name, reason=error) from error
        return files.open_file(driver, backup.container, name, extra)

    def _driver(self) -> Any:
        """Return the driver of this thread.

        :raises DriverRefused:
        """
        driver = getattr(self._local, 'driver', None)
        if driver is not None:
            return driver
        try:
            with self._making:
                driver = self._cls(self._context)
                if _SWIFT in self._classes:
                    # It does so itself only if the context has a user.
                    driver.initialize()
        except errors.AssistError:
            raise
        except Exception as error:
            raise self._refused('%s: %s' % (type(error).__name__, error)
                                ) from error
        self._local.driver = driver
        return driver

    def _refused(self, reason: str) -> errors.DriverRefused:
        return errors.DriverRefused(driver=self.driver_name, reason=reason)


def _without_mounting(cls: type, conf: cfg.ConfigOpts, kind: str,
                      option: str) -> type:
    share = getattr(conf, option)

    def mounted(driver: Any) -> str:
        if not share:
            raise errors.DriverRefused(driver=conf.backup_driver,
                                       reason='%s is not set' % option)
        client = remotefs.RemoteFsClient(
            kind, 'none',
            **{kind + '_mount_point_base': driver.backup_mount_point_base})
        path = client.get_mount_point(share)
        if not os.path.ismount(path):
            raise errors.DriverRefused(
                driver=conf.backup_driver,
                reason='%s is not mounted at %s. Start cinder-backup on '
                'this host' % (share, path))
        return path

    return type(cls.__name__, (cls,), {'_init_backup_repo_path': mounted,
                                       '__module__': cls.__module__})
