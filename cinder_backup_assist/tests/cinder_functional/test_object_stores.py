# SPDX-License-Identifier: Apache-2.0
"""Backups in object stores, made by Cinder's drivers, read by the daemon."""

import threading
from unittest import mock

from oslo_config import cfg

from cinder_backup_assist import errors
from cinder_backup_assist.store import drivers
from cinder_backup_assist.store import files
from cinder_backup_assist.tests.cinder_functional import object_stores
from cinder_backup_assist.tests.cinder_functional import sessions


class _AnyStore:
    """The tests of each store."""

    def test_each_backup_of_a_chain_is_the_volume_at_its_time(self):
        backups, contents = self.chain()
        for depth in range(1, len(backups) + 1):
            self.assertEqual(0, self.read(backups[:depth], contents[:depth]))

    def test_compressions(self):
        for compression in ('none', 'bz2', 'zstd'):
            self.override_config('backup_compression_algorithm', compression)
            backups, contents = self.chain(increments=1)
            self.assertEqual(0, self.read(backups, contents), compression)

    def test_truncated_objects(self):
        for compression in ('none', 'zlib'):
            self.override_config('backup_compression_algorithm', compression)
            backups, contents = self.chain()

            def harm(backups=backups):
                for name in self.objects_of(backups[0]):
                    data = self.get(name)
                    self.put(name, data[:len(data) // 2])

            missing = self.read(backups, contents, harm)
            self.assertGreater(missing, 0)
            # what comes before the end of an object is read
            self.assertLess(missing, len(contents[-1]) * 3 // 4)

    def test_missing_objects(self):
        backups, contents = self.chain()

        def harm():
            for name in self.objects_of(backups[0])[1:]:
                self.delete(name)

        missing = self.read(backups, contents, harm)
        self.assertGreater(missing, 0)
        self.assertLess(missing, len(contents[-1]) - self.object_size // 2)

    def test_other_bytes(self):
        self.override_config('backup_compression_algorithm', 'none')
        backups, contents = self.chain(increments=0)
        first = self.objects_of(backups[0])[0]
        data = bytearray(self.get(first))
        at = next(at for at in range(0, len(data), self.unit)
                  if any(data[at:at + self.unit]))
        data[at] ^= 1

        self.assertEqual(self.unit, self.read(
            backups, contents, lambda: self.put(first, bytes(data))))

    def test_missing_metadata(self):
        backups, _ = self.chain(increments=1)
        self.delete(backups[0].service_metadata + '_metadata')
        self.assertRaises(errors.StoreFailed, self.session, backups)

    def test_many_threads(self):
        """As many connections as there are read at a time."""
        backups, contents = self.chain()
        store = drivers.BackupStore(cfg.CONF, self.context)
        names = [(backup, name) for backup in backups
                 for name in self.objects_of(backup)]
        wrong = []

        def compare():
            # The next one is open before this one has ended.
            opened = [(name, store.open(backup, name))
                      for backup, name in names]
            try:
                for name, file in opened:
                    if b''.join(iter(lambda file=file: file.read(10000),
                                     b'')) != self.get(name):
                        wrong.append(name)
            except errors.StoreFailed as error:
                wrong.append(str(error))
            for _, file in opened:
                file.close()

        threads = [threading.Thread(target=compare) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([], wrong)


class S3Test(_AnyStore, object_stores.S3, sessions.SessionTestCase):

    def test_an_object_is_not_read_whole(self):
        backups, _ = self.chain(increments=0)
        name = self.objects_of(backups[0])[0]
        store = drivers.BackupStore(cfg.CONF, self.context)
        with store.open(backups[0], name) as file:
            self.assertEqual(self.get(name)[:100], file.read(100))
            self.assertEqual(100, file._stream.tell())


class SwiftTest(_AnyStore, object_stores.Swift, sessions.SessionTestCase):

    def test_a_connection_that_ends_early(self):
        self.override_config('backup_compression_algorithm', 'none')
        backups, contents = self.chain(increments=0)
        first = self.objects_of(backups[0])[0]
        missing = self.read(backups, contents, lambda: self.server.cut.add(
            '%s/%s' % (object_stores.BUCKET, first)))
        self.assertGreater(missing, 0)
        self.assertLess(missing, self.object_size)

    def test_one_token_is_used_until_it_expires(self):
        backups, contents = self.chain(increments=1)
        found = self.session(backups)
        before = self.server.logins
        self.assertEqual(0, self.compare(self.frames(found), contents))
        self.assertEqual(before, self.server.logins)
        self.server.token = 'second'
        self.metrics.__init__()
        self.assertEqual(0, self.compare(self.frames(found), contents))
        self.assertEqual(before + 1, self.server.logins)

    def test_the_users_own_token_is_refused(self):
        self.override_config('backup_swift_auth', 'per_user')
        error = self.assertRaises(errors.DriverRefused, drivers.BackupStore,
                                  cfg.CONF, self.context)
        self.assertIn('single_user', str(error))


class GoogleTest(_AnyStore, object_stores.Google, sessions.SessionTestCase):

    def test_objects_that_are_too_long_to_be_read_whole(self):
        backups, contents = self.chain(increments=0)
        longest = max(len(self.get(name)) for name in self.names())
        found = self.session(backups)
        with mock.patch.object(files, 'MAX_WHOLE', longest - 1):
            missing = self.compare(self.frames(found), contents)
        self.assertGreater(missing, 0)
        self.assertLessEqual(missing, self.object_size)
