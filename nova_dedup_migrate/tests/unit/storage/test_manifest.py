# SPDX-License-Identifier: Apache-2.0
"""Manifests that are right, and all that are not."""

import io
import random
import struct

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.tests import base

SIZE = 5000 * blocks.BLOCK - 512


def encode(records, size=SIZE):
    writer = manifest.Writer(size)
    return (writer.header() + b''.join(writer.record(record)
                                       for record in records)
            + writer.end())


def digests(count, first=0):
    return b''.join(blocks.digest(b'%d' % (first + n))
                    for n in range(count))


RECORDS = [manifest.Record(manifest.ZERO, 3000, 2000),
           manifest.Record(manifest.DIGESTS, 0, 2500, digests(2500)),
           manifest.Record(manifest.ABSENT, 2500, 100),
           manifest.Record(manifest.SKIPPED, 2700, 1)]


class ParseCase(base.TestCase):
    def parse(self, data, size=SIZE, expected=None):
        return list(manifest.parse(io.BytesIO(data).read, size, expected))

    def refused(self, data, match, **options):
        error = self.assertRaises(errors.ManifestMalformed, self.parse,
                                  data, **options)
        self.assertIn(match, str(error))


class RoundTripTest(ParseCase):
    def test_all_kinds(self):
        found = self.parse(encode(RECORDS))
        self.assertEqual([manifest.ZERO] + 3 * [manifest.DIGESTS]
                         + [manifest.ABSENT, manifest.SKIPPED],
                         [record.kind for record in found])
        self.assertEqual(digests(2500), b''.join(
            record.digests for record in found))
        self.assertEqual([0, 1024, 2048],
                         [record.first for record in found[1:4]])

    def test_blocks(self):
        last = manifest.Record(manifest.DIGESTS, 4998, 2, digests(2))
        self.assertEqual(
            [(4998 * blocks.BLOCK, blocks.BLOCK),
             (4999 * blocks.BLOCK, blocks.BLOCK - 512)],
            [(block.offset, block.length) for block in last.blocks(SIZE)])

    def test_empty(self):
        self.assertEqual([], self.parse(encode([])))

    def test_long_run(self):
        """A disk of 16 TiB without data is a few bytes."""
        count = blocks.count(blocks.MAX_SIZE)
        data = encode([manifest.Record(manifest.ZERO, 0, count)],
                      blocks.MAX_SIZE)
        self.assertLess(len(data), 200)
        self.assertEqual(count, sum(
            record.count for record in self.parse(data, blocks.MAX_SIZE)))


class RefusedTest(ParseCase):
    def raw(self, *records, size=SIZE):
        return (manifest.Writer(size).header()
                + b''.join(struct.pack('>BQI', *record)
                           for record in records))

    def test_records(self):
        for record, match in (
                ((9, 0, 1), 'kind 9'),
                ((manifest.ZERO, 0, 0), '0 blocks from 0 on'),
                ((manifest.ZERO, 4999, 2), '2 blocks from 4999 on'),
                ((manifest.ZERO, 2 ** 64 - 1, 1), 'of a disk of 5000'),
                ((manifest.DIGESTS, 0, 1025), '1025 digests'),
                ((manifest.END, 1, 0), 'ends after 0 blocks instead of 1'),
                ((manifest.END, 0, 1), 'ends after')):
            self.refused(self.raw(record), match)

    def test_twice(self):
        self.refused(self.raw((manifest.ZERO, 10, 5),
                              (manifest.ABSENT, 14, 5)), 'twice')

    def test_a_thousand_million_entries(self):
        """Entries beyond the disk are refused before they are stored."""
        self.refused(self.raw(*[(manifest.ZERO, 0, 10 ** 9)]), 'of a disk')
        size = 32 << 40
        self.refused(self.raw(size=size), 'of a disk of', size=size)
        self.refused(self.raw(size=size), 'of a disk of %d bytes, not %d'
                     % (size, SIZE))

    def test_endless(self):
        """A peer that repeats a record without end is stopped."""
        header = manifest.Writer(SIZE).header()
        record = struct.pack('>BQI', manifest.ZERO, 0, 1)

        def read(length, parts=[header]):  # noqa: B006
            return parts.pop() if parts else record[:length]

        self.assertRaises(errors.ManifestMalformed, list,
                          manifest.parse(read, SIZE))

    def test_not_requested(self):
        expected = bitmap.Bitmap(5000)
        expected.set(100, 50)
        good = manifest.Record(manifest.ZERO, 120, 30)
        self.assertEqual(1, len(self.parse(encode([good]),
                                           expected=expected)))
        self.refused(encode([manifest.Record(manifest.ZERO, 120, 31)]),
                     'not requested', expected=expected)

    def test_digest_of_all(self):
        data = bytearray(encode(RECORDS))
        data[-1] ^= 1
        self.refused(bytes(data), 'its digest')

    def test_fuzzed(self):
        """Any damage is a ManifestMalformed, or changes no structure."""
        good = encode(RECORDS)
        for seed in range(200):
            source = random.Random(seed)
            data = bytearray(good)
            for _ in range(source.randrange(1, 4)):
                action = source.randrange(3)
                at = source.randrange(len(data))
                if action == 0:
                    data[at] ^= 1 << source.randrange(8)
                elif action == 1:
                    del data[at:at + source.randrange(1, 50)]
                else:
                    data[at:at] = source.randbytes(source.randrange(1, 50))
            if bytes(data[:len(good)]) == good:
                continue
            self.assertRaises(errors.ManifestMalformed, self.parse,
                              bytes(data))
