# SPDX-License-Identifier: Apache-2.0
"""The order of clearing and reading, on a disk in memory."""

import io
import os

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.storage import scan
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.storage import memory

BLOCK = blocks.BLOCK


class ScanTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.data = bytearray(os.urandom(300 * BLOCK + 1024))
        self.data[64 * BLOCK:128 * BLOCK] = bytes(64 * BLOCK)
        self.disk = memory.Disk(self.data)

    def clear(self, offset, length):
        self.disk.calls.append(('clear', offset, length))

    def scan(self, **options):
        data = b''.join(scan.scan(self.disk, self.clear, **options))
        return list(manifest.parse(io.BytesIO(data).read, len(self.data)))

    def check(self, records):
        """Compare with the disk; return the blocks by kind."""
        found = {}
        for record in records:
            for number in range(record.first, record.first + record.count):
                found[number] = record.kind
            for block in (record.blocks(len(self.data))
                          if record.kind == manifest.DIGESTS else ()):
                self.assertEqual(block.digest, blocks.digest(
                    self.data[block.offset:block.offset + block.length]))
        return found

    def test_all(self):
        found = self.check(self.scan())
        self.assertEqual([*range(301)], sorted(found))
        self.assertEqual([*range(64, 128)], [
            number for number, kind in found.items()
            if kind == manifest.ZERO])

    def test_cleared_before_it_is_looked_at(self):
        """Neither status nor content of a range is older than its bit."""
        self.scan()
        cleared = set()
        for name, offset, length in self.disk.calls:
            span = range(offset // BLOCK, blocks.count(offset + length))
            if name == 'clear':
                cleared.update(span)
            else:
                self.assertTrue(cleared.issuperset(span), (name, offset))
        self.assertEqual(set(range(301)), cleared)

    def test_zeros_are_not_read(self):
        """And not waited for."""
        self.disk.zeros = [(64 * BLOCK, 64 * BLOCK)]
        paced = []
        self.scan(pace=paced.append)
        self.assertEqual(len(self.data) - 64 * BLOCK, sum(paced))
        self.assertNotIn(('pread', 64 * BLOCK, 64 * BLOCK),
                         self.disk.calls)

    def test_absent(self):
        self.disk.absent = [(0, 10 * BLOCK), (20 * BLOCK, BLOCK + 512)]
        found = self.check(self.scan(above_base=True))
        self.assertEqual([*range(10), 20], [
            number for number, kind in sorted(found.items())
            if kind == manifest.ABSENT])

    def test_wanted(self):
        """Ranges become whole granules, in the order they are wanted."""
        records = self.scan(wanted=[(100 * BLOCK + 5, 10), (0, BLOCK)],
                            granularity=2 * BLOCK)
        self.assertEqual([100, 101, 0, 1], list(self.check(records)))

    def test_bad_sector(self):
        self.disk.bad = [5 * BLOCK]
        found = self.check(self.scan())
        self.assertEqual([*range(64)], [
            number for number, kind in found.items()
            if kind == manifest.SKIPPED])

    def test_disk_is_gone(self):
        self.disk.bad, self.disk.ready = [5 * BLOCK], False
        self.assertRaises(errors.DiskUnreadable, self.scan)

    def test_paced(self):
        waits = []
        done = scan.Scanned()
        self.scan(pace=waits.append, scanned=done)
        self.assertEqual(len(self.data), sum(waits))
        self.assertEqual(301, done.blocks)
        self.assertGreater(done.read, 200 * BLOCK)
