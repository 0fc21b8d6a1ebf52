# SPDX-License-Identifier: Apache-2.0
"""Backups of volumes that Cinder's own drivers make in a test.

Nothing of them is written by hand: Cinder's backup() writes the store and
Cinder's objects the database, as cinder-backup does.
"""

import datetime
import io
import logging
import os
import random
import tempfile

from cinder import context
from cinder import objects
from cinder.db import api as db_api
from cinder.tests.unit import test
from cinder.tests.unit import utils
from oslo_config import cfg
from oslo_utils import importutils
from oslo_utils import units
import sqlalchemy

USER = '75736572206f66206120746573742e2e'
PROJECT = '6f70656e737461636b20342065766572'
UNIT = 32768


def dump_database() -> str:
    """Return the database of a test as SQL.

    It is in memory: a process that is forked cannot use its connection.
    """
    with db_api.get_engine().connect() as database:
        return ''.join(database.connection.iterdump())


def load_database(rows: str, path: str) -> None:
    """Have this process use a database of its own, in a file.

    One in memory has one connection, which two threads must not use at once.
    """
    engine = sqlalchemy.create_engine('sqlite:///' + path)
    with engine.connect() as database:
        database.connection.executescript(rows)
    db_api.main_context_manager.patch_engine(engine)


class BackupTestCase(test.TestCase):
    """A test with a database, and a backup store in a directory.

    :cvar driver: Cinder's, which makes the backups
    :cvar compression: of objects, as backup_compression_algorithm
    :cvar object_size: bytes of the volume in one object
    """

    driver = 'cinder.backup.drivers.posix.PosixBackupDriver'
    compression = 'zlib'
    object_size = 1 << 20
    unit = UNIT

    def setUp(self):
        super().setUp()
        cfg.CONF.import_opt('backup_posix_path',
                            'cinder.backup.drivers.posix')
        # Cinder's fixture writes the log of a test that fails to the
        # terminal, in the middle of the results.
        logging.getLogger().setLevel(logging.CRITICAL)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.store = os.path.join(directory.name, 'store')
        os.mkdir(self.store)
        self.override_config('backup_posix_path', self.store)
        self.override_config('backup_file_size', self.object_size)
        self.override_config('backup_sha_block_size_bytes', self.unit)
        self.override_config('backup_compression_algorithm',
                             self.compression)
        self.override_config('backup_enable_progress_timer', False)
        self.override_config('backup_driver', self.driver)
        self.context = context.get_admin_context()
        self.random = random.Random(18)
        self._time = datetime.datetime(2026, 1, 1)

    def make_volume(self, project=PROJECT, **fields):
        """Return a new volume of 1 GiB in the database."""
        return utils.create_volume(
            self.context, size=1, project_id=project, **fields)

    def back_up(self, volume, data, parent=None, **fields):
        """Have Cinder make a backup of data; return its record.

        :param data: bytes of the whole volume
        :param parent: backup that an increment is made to
        """
        self._time += datetime.timedelta(hours=1)
        backup = utils.create_backup(
            self.context, volume.id, status='creating', size=volume.size,
            project_id=volume.project_id,
            parent_id=parent.id if parent is not None else None,
            service=self.driver,
            host='backup-1',
            availability_zone='nova')
        # the driver's own choice
        backup.container = None
        importutils.import_class(self.driver)(context.RequestContext(
            USER, PROJECT, is_admin=True)).backup(
                backup, io.BytesIO(data), backup_metadata=False)
        backup.status = 'available'
        backup.data_timestamp = self._time
        for name, value in fields.items():
            setattr(backup, name, value)
        backup.save()
        return objects.Backup.get_by_id(self.context, backup.id)

    def chain(self, increments=3, size=3 * (1 << 20) + 1536, volume=None):
        """Make a full backup and increments.

        :returns: (records, contents of the volume), the oldest first
        """
        volume = volume or self.make_volume()
        data = bytearray(self.content(size))
        backups, contents = [], []
        for _ in range(increments + 1):
            backups.append(self.back_up(
                volume, bytes(data), backups[-1] if backups else None))
            contents.append(bytes(data))
            self.change(data)
        return backups, contents

    def content(self, size):
        """Return bytes: random, compressible and zero stretches."""
        parts, done = [], 0
        while done < size:
            length = self.random.randrange(1, 12) * 8192
            parts.append(self.random.choice((
                self.random.randbytes(length), bytes(length),
                b'compressible ' * (length // 13))))
            done += len(parts[-1])
        return b''.join(parts)[:size]

    def change(self, data):
        """Overwrite some stretches of a volume, some of them by zeros."""
        for _ in range(8):
            start = self.random.randrange(len(data))
            length = self.random.randrange(1, 3 * UNIT)
            end = min(len(data), start + length)
            data[start:end] = self.random.choice(
                (self.random.randbytes, bytes))(end - start)

    def objects_of(self, backup):
        """Return the paths of the objects of a backup."""
        directory = os.path.join(self.store, backup.container)
        return sorted(os.path.join(directory, name)
                      for name in os.listdir(directory)
                      if not name.endswith(('_metadata', '_sha256file')))

    def file_of(self, backup, suffix):
        """Return the path of the metadata or list of SHA-256."""
        return os.path.join(self.store, backup.container,
                            backup.service_metadata + suffix)


GIB = units.Gi
