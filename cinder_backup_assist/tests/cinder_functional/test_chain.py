# SPDX-License-Identifier: Apache-2.0
"""Maps of backups that Cinder has made, compared with the volume."""

import hashlib
import os

from cinder_backup_assist import errors
from cinder_backup_assist.blockmap import chain
from cinder_backup_assist.blockmap import stream
from cinder_backup_assist.tests.cinder_functional import real_backups


class ChainTestCase(real_backups.BackupTestCase):

    def layers(self, backups):
        """Return the layers of a chain, for chain.join."""
        return [chain.Layer(
            backup.id, backup.volume_id, backup.parent_id,
            backup.service_metadata,
            lambda name, backup=backup: open(os.path.join(
                self.store, backup.container, name), 'rb'))
            for backup in reversed(backups)]

    def join(self, backups):
        blocks = chain.join(self.layers(backups))
        self.addCleanup(blocks.close)
        return blocks

    def read(self, blocks, backups, extents=None, opened=None):
        """Return (bytes of the volume, failures) as the stream has them."""
        def open_object(entry):
            if opened is not None:
                opened.append(entry)
            return open(os.path.join(
                self.store, backups[entry.layer].container, entry.name),
                'rb')

        found, failures = bytearray(blocks.length), []
        if extents is None:
            extents = [(0, blocks.units)]
        readers = stream.Readers(open_object)
        self.addCleanup(readers.close)
        for item in stream.read(blocks, extents, readers):
            if isinstance(item, stream.Failure):
                failures.append(item)
            else:
                found[item.offset:item.offset + len(item.data)] = item.data
        return bytes(found), failures


class ZlibTest(ChainTestCase):
    """Cinder's default."""

    def test_each_backup_of_a_chain_is_the_volume_at_its_time(self):
        backups, contents = self.chain()
        for depth in range(1, len(backups) + 1):
            blocks = self.join(backups[:depth])
            self.assertEqual(len(contents[0]), blocks.length)
            found, failures = self.read(blocks, backups)
            self.assertEqual([], failures)
            self.assertTrue(contents[depth - 1] == found, depth)


class PlainTest(ZlibTest):
    compression = 'none'


class Bz2Test(ZlibTest):
    compression = 'bz2'


class ZstdTest(ZlibTest):
    compression = 'zstd'


class SmallUnitTest(ZlibTest):
    unit = 4096


class ConsolidationTest(ChainTestCase):
    """What is read, and what is not."""

    def test_manifest_has_the_digest_of_each_unit(self):
        backups, contents = self.chain(increments=1)
        blocks = self.join(backups)
        expected = b''.join(
            hashlib.sha256(contents[-1][at:at + self.unit]).digest()
            for at in range(0, len(contents[-1]), self.unit))
        self.assertEqual(expected, b''.join(blocks.manifest()))

    def test_no_object_is_read_twice(self):
        backups, contents = self.chain()
        opened = []
        self.read(self.join(backups), backups, opened=opened)
        names = [entry.name for entry in opened]
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual(sorted(entry.layer for entry in opened),
                         [entry.layer for entry in opened])

    def test_what_is_newer_elsewhere_is_not_read(self):
        volume = self.make_volume()
        data = bytearray(self.random.randbytes(8 * self.unit))
        backups = [self.back_up(volume, bytes(data))]
        for _ in range(2):
            data[5 * self.unit:6 * self.unit] = self.random.randbytes(
                self.unit)
            backups.append(self.back_up(volume, bytes(data), backups[-1]))
        opened = []
        found, _ = self.read(self.join(backups), backups, opened=opened)
        self.assertTrue(bytes(data) == found)
        self.assertEqual([0, 2], [entry.layer for entry in opened])

    def test_ranges_have_what_was_wanted_and_nothing_else(self):
        backups, contents = self.chain()
        blocks = self.join(backups)
        extents = [(3, 1), (10, 7), (40, 50)]
        found, failures = self.read(blocks, backups, extents)
        expected = bytearray(len(found))
        for first, count in extents:
            start, end = first * self.unit, (first + count) * self.unit
            expected[start:end] = contents[-1][start:end]
        self.assertEqual([], failures)
        self.assertTrue(bytes(expected) == found)

    def test_no_object_is_read_twice_by_many_requests(self):
        backups, contents = self.chain()
        blocks = self.join(backups)
        opened, found = [], bytearray(blocks.length)

        def open_object(entry):
            opened.append(entry.name)
            return open(os.path.join(
                self.store, backups[entry.layer].container, entry.name),
                'rb')

        readers = stream.Readers(open_object)
        self.addCleanup(readers.close)
        for start in range(0, blocks.units, 3):
            for item in stream.read(
                    blocks, [(start, min(3, blocks.units - start))],
                    readers):
                found[item.offset:item.offset + len(item.data)] = item.data
        self.assertTrue(contents[-1] == bytes(found))
        self.assertEqual(len(set(opened)), len(opened))

    def test_zeros_are_not_read(self):
        volume = self.make_volume()
        data = bytearray(self.content(1 << 20))
        full = self.back_up(volume, bytes(data))
        data[:8 * self.unit] = bytes(8 * self.unit)
        blocks = self.join([full, self.back_up(volume, bytes(data), full)])
        self.assertEqual([], blocks.runs([(0, 8)]))

    def test_a_tail_of_zeros_is_not_read(self):
        backup = self.back_up(self.make_volume(),
                              self.content(self.unit) + bytes(1024))
        blocks = self.join([backup])
        self.assertEqual([chain.Run(0, 0, 1)], blocks.runs([(0, 2)]))

    def test_metadata_is_never_read_whole(self):
        backups, contents = self.chain(increments=1)
        sizes = []

        class Watched:
            def __init__(self, file):
                self._file = file

            def __enter__(self):
                return self

            def __exit__(self, *_):
                self._file.close()

            def read(self, size):
                sizes.append(size)
                return self._file.read(min(size, 100))

        layers = [chain.Layer(
            layer.backup_id, layer.volume_id, layer.parent_id, layer.prefix,
            lambda name, layer=layer: Watched(layer.open(name)))
            for layer in self.layers(backups)]
        blocks = chain.join(layers)
        self.addCleanup(blocks.close)
        self.assertLessEqual(max(sizes), 1 << 20)
        found, _ = self.read(blocks, backups)
        self.assertTrue(contents[-1] == found)


class BrokenChainTest(ChainTestCase):

    def refused(self, backups, pattern):
        error = self.assertRaises(errors.MalformedChain, self.join, backups)
        self.assertRegex(str(error), pattern)

    def test_a_missing_parent_is_refused(self):
        backups, _ = self.chain(increments=2)
        self.refused(backups[1:], 'the parent of .* is')
        self.refused([backups[0], backups[2]], 'the parent of .* is')

    def test_another_volumes_backup_is_refused(self):
        backups, _ = self.chain(increments=0)
        backups[0].volume_id = backups[0].id
        self.refused(backups, 'volume_id is .* in the database')

    def test_another_backups_files_are_refused(self):
        (one,), _ = self.chain(increments=0)
        (other,), _ = self.chain(
            increments=0, volume=None)
        one.service_metadata = other.service_metadata
        one.container = other.container
        self.refused([one], 'backup_id is')

    def test_another_parent_in_the_store_is_refused(self):
        backups, _ = self.chain(increments=2)
        backups[1].parent_id = None
        self.refused(backups[1:], 'in the store')

    def test_a_chain_without_end_is_refused(self):
        backups, _ = self.chain(increments=0)
        self.refused(backups * 2000, 'more than 1024 backups')
