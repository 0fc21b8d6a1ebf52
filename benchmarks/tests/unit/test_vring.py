# SPDX-License-Identifier: Apache-2.0
import struct

from benchmarks import vring
from nova_dedup_migrate.tests import base

MIB = 1 << 20


class BatchesTest(base.TestCase):

    def reads(self, size, sequential, count=3):
        """[(address, sector)] of all requests."""
        found = []
        for descriptors, headers in vring.batches(
                size, 64 * MIB, 128 * MIB, sequential, count):
            for i in range(vring.BATCH):
                chain = [struct.unpack_from('<QIHH', descriptors,
                                            16 * (3 * i + k))
                         for k in range(3)]
                self.assertEqual([3 * i + 1, 3 * i + 2],
                                 [chain[0][3], chain[1][3]])
                self.assertEqual([1, 3, 2], [link[2] for link in chain])
                self.assertEqual(size, chain[1][1])
                kind, _, sector = struct.unpack_from('<IIQ', headers, 16 * i)
                self.assertEqual(0, kind)
                found.append((chain[1][0], sector))
        return found

    def test_sequential(self):
        found = self.reads(128 << 10, True)
        self.assertEqual([0, 256, 512], [one[1] for one in found[:3]])
        self.assertEqual(found[0][0] + (128 << 10), found[1][0])

    def test_all_inside(self):
        for size, sequential in ((128 << 10, True), (4096, False)):
            for address, sector in self.reads(size, sequential):
                self.assertGreaterEqual(address, 16 * MIB)
                self.assertLessEqual(address + size, 128 * MIB)
                self.assertLessEqual(sector * 512 + size, 64 * MIB)

    def test_always_the_same(self):
        self.assertEqual(self.reads(4096, False), self.reads(4096, False))
