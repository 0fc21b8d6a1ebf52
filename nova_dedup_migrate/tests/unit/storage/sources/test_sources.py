# SPDX-License-Identifier: Apache-2.0
"""The sources of blocks that need no other host."""

import io
import os
import random

import numpy

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import chain
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import layers
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import segment
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.storage.sources import image
from nova_dedup_migrate.storage.sources import local
from nova_dedup_migrate.storage.sources import source
from nova_dedup_migrate.storage.sources import zero
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.storage import memory
from nova_dedup_migrate.tests.unit.storage.sources import conformance

BLOCK = blocks.BLOCK


def random_content(count=5):
    content = {(n + 3) * BLOCK: os.urandom(BLOCK) for n in range(count)}
    content[(count + 3) * BLOCK] = os.urandom(512)
    return content


def disk_of(content):
    """Return the bytes of a disk that has them and zeros else."""
    size = max(offset + len(data) for offset, data in content.items())
    disk = bytearray(size)
    for offset, data in content.items():
        disk[offset:offset + len(data)] = data
    return disk


class ZeroSourceTest(conformance.Conformance, base.TestCase):
    def setUp(self):
        super().setUp()
        self.source = zero.ZeroSource()
        self.content = {0: bytes(BLOCK), BLOCK: bytes(512)}


class GuestDiskSourceTest(conformance.Conformance, base.TestCase):
    def setUp(self):
        super().setUp()
        self.content = random_content()
        self.disk = memory.Disk(disk_of(self.content))
        self.source = source.GuestDiskSource(self.disk)

    def test_unreadable(self):
        self.disk.bad = [3 * BLOCK]
        self.assertRaises(errors.SourceFailed, self.source.read,
                          self.wanted())


class LocalSourceTest(conformance.Conformance, base.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.content = random_content()
        self.path = self.directory / 'image'
        self.path.write_bytes(disk_of(self.content))
        self.index = store.Index(str(self.directory / 'index'))
        self.addCleanup(self.index.close)
        self.add(self.path, 'p1')
        self.source = self.of('p1')

    def add(self, path, owner):
        with open(path, 'rb') as file:
            found = fingerprints.fingerprint(file.fileno())
        self.index.add(str(path), owner, found.stat, found.digests,
                       found.numbers)

    def of(self, *owners):
        return local.LocalSource(self.index, lambda: owners,
                                 [str(self.directory)])

    def test_other_projects_digests(self):
        """Another project does not learn that the content is here."""
        wanted = self.wanted()
        for owners in ((), ('p2',), (store.PUBLIC,), ('p',), ('P1',)):
            other = self.of(*owners)
            self.assertEqual([False] * len(wanted), other.have(wanted))
            self.assertEqual([None] * len(wanted), other.read(wanted))

    def test_public_content(self):
        self.index.set_owner(str(self.path), store.PUBLIC)
        self.assertEqual([False] * 6, self.source.have(self.wanted()))
        self.assertEqual([True] * 6, self.of('p2', store.PUBLIC).have(
            self.wanted()))

    def test_file_is_gone(self):
        self.path.unlink()
        self.assertEqual([False] * 6, self.source.have(self.wanted()))
        self.assertEqual([None] * 6, self.source.read(self.wanted()))

    def test_file_is_another(self):
        self.path.rename(self.directory / 'old')
        self.path.write_bytes(disk_of(self.content))
        self.assertEqual([False] * 6, self.source.have(self.wanted()))
        self.assertEqual([None] * 6, self.source.read(self.wanted()))

    def test_shorter(self):
        os.truncate(self.path, 4 * BLOCK + 100)
        found = self.source.read(self.wanted())
        self.assertEqual([BLOCK, 100, 0], [len(data) for data in found[:3]])

    def test_forged_entry(self):
        """An index cannot make an agent open what it must not."""
        secret = self.temporary_dir() / 'secret'
        secret.write_bytes(os.urandom(BLOCK))
        link = self.directory / 'link'
        link.symlink_to(secret)
        digest = blocks.digest(secret.read_bytes())
        for path in (secret, link,
                     self.directory / '..' / secret.parent.name / 'secret'):
            self.index.add(str(path), 'p1', os.stat(secret),
                           segment.keys(digest),
                           numpy.zeros(1, numpy.uint64))
            wanted = [blocks.Block(digest, 0, BLOCK)]
            self.assertEqual([True], self.source.have(wanted))
            self.assertEqual([None], self.source.read(wanted))
            self.index.remove(str(path))


class ImageSourceTest(conformance.Conformance, base.TestCase):
    """A base file and above it a snapshot that is read over HTTP."""

    def setUp(self):
        super().setUp()
        directory = self.temporary_dir()
        self.content = random_content(6)
        self.disk = disk_of(self.content)
        path = directory / 'base'
        # a file with a hole: 3 to 5 are not in it
        with path.open('wb') as file:
            file.seek(6 * BLOCK)
            file.write(self.disk[6 * BLOCK:])
        self.opened = []
        self.source = image.ImageSource(
            [Part(self.open_range, 3 * BLOCK, 3 * BLOCK),
             layers.FileLayer(str(path), [str(directory)])],
            len(self.disk))
        self.addCleanup(self.source.close)

    def open_range(self, offset, length):
        self.opened.append((offset, length))
        return io.BytesIO(self.disk[offset:offset + length])

    def test_neighbours_are_one_read(self):
        self.source.read(self.wanted())
        self.assertEqual([(3 * BLOCK, 3 * BLOCK)], self.opened)

    def test_by_digest(self):
        offsets = {blocks.digest(data): offset
                   for offset, data in self.content.items()}
        moved = [blocks.Block(block.digest, 100 * BLOCK, block.length)
                 for block in self.wanted()]
        found = image.ImageSource(
            [Part(self.open_range, 0, len(self.disk))], len(self.disk),
            offsets)
        self.assertEqual([True] * 7, found.have(moved))
        self.assertTrue(list(self.content.values()) == found.read(moved))

    def test_server_sends_other_lengths(self):
        for answer in (self.disk, b'', self.disk[:BLOCK]):
            broken = image.ImageSource([layers.RangeLayer(
                lambda offset, length, answer=answer: io.BytesIO(answer),
                len(self.disk))], len(self.disk))
            self.assertRaises(errors.SourceFailed, broken.read,
                              self.wanted()[:2])


class Part(layers.RangeLayer):
    """A layer that has one range."""

    def __init__(self, open_range, offset, length):
        super().__init__(open_range, offset + length)
        self._range = (offset, length)

    def ranges(self):
        return [self._range]


class ChainTest(base.TestCase):
    def test_against_a_model(self):
        for seed in range(150):
            rng = random.Random(seed)
            size = rng.randrange(1, 400)
            model = bytearray(size)
            owner = [None] * size
            made = []
            for number in range(rng.randrange(1, 6)):
                data = rng.randbytes(size + 20)
                ranges, at = [], 0
                while at < size + 10 and rng.random() < 0.8:
                    at += rng.randrange(0, 40)
                    length = rng.randrange(1, 60)
                    ranges.append((at, length))
                    for index in range(at, min(size, at + length)):
                        if owner[index] is None:
                            owner[index] = number
                            model[index] = data[index]
                    at += length
                made.append(Ranges(ranges, data))
            found = chain.Map(made, size)
            self.assertEqual(owner, [
                next((piece.layer for piece in found.within(at, 1)), None)
                for at in range(size)])
            for _ in range(10):
                first = rng.randrange(size)
                length = rng.randrange(size - first + 1)
                self.assertEqual(model[first:first + length],
                                 found.read(first, length))
                self.assertEqual(None not in owner[first:first + length],
                                 found.has(first, length))

    def test_too_long(self):
        self.assertRaises(chain.ChainTooLong, chain.Map,
                          [Ranges([], b'')] * 513, 10)

    def test_not_in_order(self):
        self.assertRaises(ValueError, chain.Map,
                          [Ranges([(5, 5), (9, 2)], bytes(20))], 20)


class Ranges(chain.Layer):
    def __init__(self, ranges, data):
        self._ranges, self._data = ranges, data

    def ranges(self):
        return self._ranges

    def read(self, offset, length):
        return self._data[offset:offset + length]
