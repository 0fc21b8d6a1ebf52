# SPDX-License-Identifier: Apache-2.0
"""Sessions whose store is not as Cinder wrote it."""

import bz2
import os
import tracemalloc
import zlib

import zstandard

from cinder_backup_assist import errors
from cinder_backup_assist.tests.cinder_functional import sessions

#: Bytes of zeros that one object decompresses to.
_BOMB = 64 << 20


class DamagedStoreTest(sessions.SessionTestCase):
    """What comes is right, and what is not right is missing."""

    def test_good_store(self):
        backups, contents = self.chain()
        self.assertEqual(0, self.read(backups, contents))

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


class BombTest(sessions.SessionTestCase):
    """Objects that decompress to far more than they are to have."""

    def bomb(self, compression, stream):
        self.override_config('backup_compression_algorithm', compression)
        backups, contents = self.chain()
        bomb = b''.join(stream.compress(bytes(1 << 20))
                        for _ in range(_BOMB >> 20)) + stream.flush()
        self.assertLess(len(bomb), _BOMB // 500)

        def harm():
            for path in self.objects_of(backups[0]):
                with open(path, 'wb') as file:
                    file.write(bomb)
            tracemalloc.start()

        self.addCleanup(tracemalloc.stop)
        self.assertGreater(self.read(backups, contents, harm), 0)
        self.assertLess(tracemalloc.get_traced_memory()[1], _BOMB // 2)

    def test_zlib(self):
        self.bomb('zlib', zlib.compressobj(9))

    def test_bz2(self):
        self.bomb('bz2', bz2.BZ2Compressor())

    def test_zstd(self):
        self.bomb('zstd', zstandard.ZstdCompressor().compressobj())
