# SPDX-License-Identifier: Apache-2.0
"""Streams of objects that are longer, or need more memory, than allowed."""

import bz2
import io
import tracemalloc
import unittest
import zlib

import zstandard

from cinder_backup_assist import errors
from cinder_backup_assist.blockmap import chain
from cinder_backup_assist.blockmap import objects

#: Bytes that a bomb decompresses to, and that the metadata has of it.
_BOMB = 64 << 20
_LENGTH = 4 << 20


def _squeeze(stream, size):
    return b''.join(stream.compress(bytes(1 << 20))
                    for _ in range(size >> 20)) + stream.flush()


class BombTest(unittest.TestCase):

    def read(self, compression, stream, size=_BOMB):
        data = _squeeze(stream, size)
        reader = objects.ObjectReader(
            chain.ChainObject(0, 'o', 0, _LENGTH, compression),
            io.BytesIO(data))
        tracemalloc.start()
        tracemalloc.reset_peak()
        self.addCleanup(tracemalloc.stop)
        first = reader.read(1 << 20)
        reader.skip_to(_LENGTH - 512)
        return first, reader.read(512)

    def test_no_more_is_decompressed_than_is_read(self):
        for compression, stream in (
                ('zlib', zlib.compressobj(9)), ('bz2', bz2.BZ2Compressor()),
                ('zstd', zstandard.ZstdCompressor().compressobj())):
            with self.subTest(compression):
                first, last = self.read(compression, stream)
                self.assertTrue(bytes(1 << 20) == first)
                self.assertEqual(bytes(512), last)
                # what is read, and what bz2 and zstd keep
                self.assertLess(tracemalloc.get_traced_memory()[1], 16 << 20)

    def test_a_window_that_takes_much_memory(self):
        """zstd allocates the window that the header of a frame has."""
        def stream(log):
            return zstandard.ZstdCompressor(
                compression_params=zstandard.ZstdCompressionParameters(
                    window_log=log, hash_log=6, chain_log=6)).compressobj()

        self.read('zstd', stream(27), _LENGTH)
        self.assertRaisesRegex(errors.DamagedObject, 'too much memory',
                               self.read, 'zstd', stream(28), _LENGTH)
