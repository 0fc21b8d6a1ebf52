# SPDX-License-Identifier: Apache-2.0
"""Sessions whose store is not as Cinder wrote it."""

import io
import os
import zlib

from oslo_config import cfg

from cinder_backup_assist import errors
from cinder_backup_assist.service import limits
from cinder_backup_assist.service import metrics
from cinder_backup_assist.service import session
from cinder_backup_assist.store import drivers
from cinder_backup_assist.tests.cinder_functional import real_backups
from nova_dedup_migrate.backups import frames


class DamagedStoreTest(real_backups.BackupTestCase):
    """What comes is right, and what is not right is missing."""

    def session(self, backups):
        self.metrics = metrics.Metrics()
        found = session.Session(
            drivers.BackupStore(cfg.CONF, self.context),
            list(reversed(backups)), None, limits.RateLimit(0), self.metrics)
        self.addCleanup(found.close)
        return found

    def frames(self, found):
        return frames.parse(
            _Joined(found.frames([(0, found.blocks.units)])).read,
            found.blocks.length, found.blocks.unit)

    def read(self, backups, contents, harm):
        """Read a volume after harm; return how many bytes are missing."""
        found = self.session(backups)
        harm()
        return self.compare(self.frames(found), contents)

    def compare(self, arriving, contents, after_first=None):
        missing, result = 0, bytearray(len(contents[-1]))
        for frame in arriving:
            end = frame.offset + frame.length
            if frame.kind == frames.MISSING:
                missing += frame.length
                # as if the volume had been read for it
                result[frame.offset:end] = contents[-1][frame.offset:end]
            else:
                result[frame.offset:end] = frame.data
            if after_first is not None:
                after_first()
                after_first = None
        self.assertTrue(contents[-1] == bytes(result))
        self.assertEqual(missing,
                         self.metrics.value('missing_bytes_total'))
        return missing

    def test_good_store(self):
        backups, contents = self.chain()
        self.assertEqual(0, self.read(backups, contents, lambda: None))

    def test_deleted_while_it_is_read(self):
        self.override_config('backup_compression_algorithm', 'none')
        backups, contents = self.chain(size=4 << 20)

        def harm():
            for backup in backups:
                for path in self.objects_of(backup):
                    os.unlink(path)

        self.assertGreater(self.compare(
            self.frames(self.session(backups)), contents, harm), 0)

    def test_metadata_that_lies(self):
        backups, _ = self.chain(increments=1)
        path = self.file_of(backups[-1], '_metadata')
        with open(path) as file:
            good = file.read()
        for wrong in (good.replace('"length": ', '"length": 9223372036'),
                      good.replace('"offset": ', '"offset": -'),
                      good.replace('_backup_', '/../../'), good[:-20], '',
                      '[' * 100000):
            with open(path, 'w') as file:
                file.write(wrong)
            self.assertRaises(errors.MalformedBackup, self.session, backups)

    def test_other_bytes(self):
        self.override_config('backup_compression_algorithm', 'none')
        backups, contents = self.chain()
        path = self.objects_of(backups[0])[0]

        def harm():
            with open(path, 'r+b') as file:
                for unit in range(2, 10):
                    file.seek(unit * self.unit + 7)
                    file.write(b'other bytes')

        missing = self.read(backups, contents, harm)
        self.assertIn(missing, range(self.unit, 9 * self.unit, self.unit))

    def test_other_bytes_compressed(self):
        backups, contents = self.chain()
        path = self.objects_of(backups[0])[1]

        def harm():
            with open(path, 'r+b') as file:
                file.seek(os.path.getsize(path) // 2)
                file.write(b'other bytes')

        self.assertGreater(self.read(backups, contents, harm), 0)

    def test_truncated_objects(self):
        backups, contents = self.chain()

        def harm():
            for path in self.objects_of(backups[0]):
                os.truncate(path, os.path.getsize(path) // 2)

        self.assertGreater(self.read(backups, contents, harm), 0)

    def test_missing_objects(self):
        backups, contents = self.chain()

        def harm():
            for backup in backups[:2]:
                for path in self.objects_of(backup):
                    os.unlink(path)

        self.assertGreater(self.read(backups, contents, harm), 0)

    def test_an_object_that_is_another_file(self):
        """A link in the store gives nothing of the host away."""
        self.override_config('backup_compression_algorithm', 'none')
        backups, contents = self.chain()
        secret = os.path.join(os.path.dirname(self.store), 'secret')
        with open(secret, 'wb') as file:
            file.write(b'secret ' * (1 << 20))

        def harm():
            path = self.objects_of(backups[0])[0]
            os.unlink(path)
            os.symlink(secret, path)

        self.assertGreater(self.read(backups, contents, harm), 0)

    def test_a_bomb(self):
        """An object that is far longer than it is to be."""
        backups, contents = self.chain()
        stream = zlib.compressobj(9)
        bomb = b''.join(stream.compress(bytes(1 << 20))
                        for _ in range(512)) + stream.flush()

        def harm():
            for path in self.objects_of(backups[0]):
                with open(path, 'wb') as file:
                    file.write(bomb)

        self.assertGreater(self.read(backups, contents, harm), 0)


class _Joined(io.RawIOBase):
    """What a session yields, as a file."""

    def __init__(self, parts):
        super().__init__()
        self._parts = parts
        self._left = b''

    def read(self, size=-1):
        while len(self._left) < size:
            part = next(self._parts, None)
            if part is None:
                break
            self._left += part
        data, self._left = self._left[:size], self._left[size:]
        return data
