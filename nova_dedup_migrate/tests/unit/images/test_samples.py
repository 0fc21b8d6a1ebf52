# SPDX-License-Identifier: Apache-2.0
"""Digests of a few blocks."""

import os

from nova_dedup_migrate.images import samples
from nova_dedup_migrate.tests import base

KEY = '5a' * 32
BLOCK = 4096


class SamplesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.path = self.temporary_dir() / 'disk'

    def digest(self, content, key=KEY):
        self.path.write_bytes(content)
        fd = os.open(self.path, os.O_RDONLY)
        try:
            return samples.digest(fd, key)
        finally:
            os.close(fd)

    def test_same_content(self):
        content = os.urandom(300 * BLOCK + 17)
        self.assertEqual(self.digest(content), self.digest(content))
        self.assertRegex(self.digest(content), '^[0-9a-f]{64}$')

    def test_key_decides(self):
        content = os.urandom(300 * BLOCK)
        self.assertNotEqual(self.digest(content),
                            self.digest(content, 'a5' * 32))

    def test_other_header(self):
        content = bytearray(os.urandom(300 * BLOCK))
        before = self.digest(content)
        content[5] ^= 1
        self.assertNotEqual(before, self.digest(content))

    def test_other_content(self):
        content = os.urandom(300 * BLOCK)
        other = content[:16 * BLOCK] + os.urandom(284 * BLOCK)
        self.assertNotEqual(self.digest(content), self.digest(other))

    def test_other_size(self):
        content = os.urandom(20 * BLOCK)
        self.assertNotEqual(self.digest(content),
                            self.digest(content + bytes(1)))

    def test_nothing_but_zeros_proves_nothing(self):
        self.assertIsNone(self.digest(bytes(100 * BLOCK)))
        self.assertIsNone(self.digest(b''))

    def test_offsets(self):
        secret = bytes.fromhex(KEY)
        for size in (0, 1, BLOCK, 16 * BLOCK, 17 * BLOCK, 2 ** 40 + 5):
            offsets = samples.offsets(size, secret)
            self.assertEqual(sorted(set(offsets)), offsets)
            self.assertLessEqual(len(offsets), 64)
            for offset in offsets:
                self.assertEqual(0, offset % BLOCK)
                self.assertLess(offset, size)
        self.assertGreater(max(samples.offsets(2 ** 40, secret)), 2 ** 39)
