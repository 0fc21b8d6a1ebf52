# SPDX-License-Identifier: Apache-2.0
"""The index: look-ups, owners, limits, damage."""

import multiprocessing
import os
import random
import signal

import numpy

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import errors
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import segment
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.tests import base

BLOCK = blocks.BLOCK


def digests(name, count):
    return [blocks.digest(b'%s %d' % (name.encode(), n))
            for n in range(count)]


class StoreCase(base.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = str(self.temporary_dir() / 'index')
        self.index = self.open()
        self.stat = os.stat(__file__)

    def open(self, **options):
        found = store.Index(self.directory, **options)
        self.addCleanup(found.close)
        return found

    def add(self, name, owner='p', count=10, index=None, these=None):
        these = these or digests(name, count)
        return (index or self.index).add(
            name, owner, self.stat, segment.keys(b''.join(these)),
            numpy.arange(len(these), dtype=numpy.uint64))

    def paths(self, these, *owners, index=None):
        return [None if place is None else place.file.path
                for place in (index or self.index).find(these, owners)]


class StoreTest(StoreCase):
    def test_against_a_model(self):
        """Adding, replacing, removing, compacting, opening again."""
        for seed in range(3):
            rng = random.Random(seed)
            self.directory = str(self.temporary_dir() / 'index')
            index, model = self.open(), {}
            for _ in range(30):
                name = str(rng.randrange(12))
                action = rng.randrange(10)
                if action < 6:
                    these = digests(str(rng.randrange(5)),
                                    rng.randrange(1, 30))
                    owner = rng.choice('pq')
                    self.add(name, owner, index=index, these=these)
                    model[name] = owner, these
                elif action < 8:
                    index.remove(name)
                    model.pop(name, None)
                elif action < 9:
                    index.compact()
                else:
                    index.close()
                    index = self.open()
            for name in map(str, range(12)):
                keys = index.keys_of(name)
                self.assertEqual(
                    model.get(name) and sorted(segment.keys(
                        b''.join(model[name][1])).tolist()),
                    keys if keys is None else sorted(keys.tolist()))
            wanted = [digest for n in range(5)
                      for digest in digests(str(n), 30)]
            for owners in ('p', 'q', 'pq', ''):
                for digest, place in zip(wanted, index.find(wanted, owners),
                                         strict=True):
                    there = {(name, these.index(digest) * BLOCK)
                             for name, (owner, these) in model.items()
                             if owner in owners and digest in these}
                    if place is None:
                        self.assertEqual(set(), there)
                    else:
                        self.assertIn((place.file.path, place.offset),
                                      there)
            self.assertLessEqual(len(index._segments), store.MAX_SEGMENTS)

    def test_zeros_are_not_entered(self):
        file = self.add('a', these=[blocks.ZERO_DIGEST] * 5 + digests('a', 2))
        self.assertEqual(2, file.entries)
        self.assertEqual([None], self.paths([blocks.ZERO_DIGEST], 'p'))

    def test_sixteen_bytes_an_entry(self):
        self.add('a', count=1000)
        self.assertEqual(16 + 16 * 1000, sum(
            entry.stat().st_size for entry in os.scandir(self.directory)
            if entry.name.endswith('.segment')))

    def test_capped(self):
        self.index.close()
        index = self.open(max_entries=100)
        for name in 'abcdefgh':
            self.assertIsNotNone(self.add(name, count=30, index=index))
            self.assertLessEqual(index.entries, 100)
        self.assertEqual([None, 'h'], self.paths(
            [digests('a', 1)[0], digests('h', 1)[0]], 'p', index=index))
        self.assertIsNone(self.add('i', count=101, index=index))

    def test_other_owners_copies_hide_nothing(self):
        """As many places of one digest as an index has, and one of ours."""
        one = digests('x', 1)
        for number in range(40):
            self.add('theirs%d' % number, 'q', these=one)
        self.add('ours', 'p', these=one)
        for number in range(40, 50):
            self.add('theirs%d' % number, 'q', these=one)
        self.assertEqual(['ours'], self.paths(one, 'p'))

    def test_two_processes(self):
        """One writes, others look on."""
        self.add('a')
        error = self.assertRaises(errors.IndexInUse, self.open)
        self.assertIn('Stop it first', str(error))
        reader = self.open(writable=False)
        self.assertEqual(['a'], self.paths(digests('a', 1), 'p',
                                           index=reader))
        reader.close()
        self.index.close()
        self.open()

    def test_look_up_while_it_is_merged(self):
        self.add('a')
        held = list(self.index._segments.values())
        self.index.compact()
        found = numpy.zeros(10, segment.KEY)
        keys = numpy.sort(segment.keys(b''.join(digests('a', 10))))
        held[0].look_up(keys, numpy.ones(5, bool), found)
        self.assertTrue(found.all())


class DamageTest(StoreCase):
    def segment(self):
        name, = (name for name in os.listdir(self.directory)
                 if name.endswith('.segment'))
        return os.path.join(self.directory, name)

    def test_damaged(self):
        self.add('a')
        self.index.close()
        with open(self.segment(), 'rb') as file:
            good = file.read()
        for data in (b'', good[:10], good[:-8], good + b'x',
                     b'X' + good[1:], good[:8] + b'\xff' * 8 + good[16:]):
            with open(self.segment(), 'wb') as file:
                file.write(data)
            error = self.assertRaises(errors.IndexDamaged, self.open)
            self.assertIn('.segment', str(error))

    def test_no_catalog(self):
        self.index.close()
        for entry in os.scandir(self.directory):
            os.unlink(entry.path)
        with open(os.path.join(self.directory, 'catalog'), 'wb') as file:
            file.write(b'x' * 5000)
        self.assertRaises(errors.IndexDamaged, self.open)

    def test_forged_entries(self):
        """Any keys and places: hints, or nothing."""
        self.add('a')
        wanted = digests('a', 10)
        path = self.segment()
        for seed in range(100):
            rng = random.Random(seed)
            with open(path, 'r+b') as file:
                file.seek(16 + rng.randrange(150))
                file.write(rng.randbytes(rng.randrange(1, 10)))
            index = self.open(writable=False)
            for place in index.find(wanted, ['p']):
                if place is not None:
                    self.assertEqual('a', place.file.path)
                    self.assertGreaterEqual(place.offset, 0)

    def test_killed(self):
        """kill -9 at any time leaves an index that opens."""
        for number in range(2):
            self.index.close()
            context = multiprocessing.get_context('fork')
            begun = context.Event()
            process = context.Process(target=_fill, args=(
                self.directory, self.stat, begun, number))
            process.start()
            self.assertTrue(begun.wait(30))
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            self.index = self.open()
            for file in self.index.files():
                found = self.paths(digests(file.path, 10), 'p')
                self.assertEqual([file.path] * 10, found)
            self.add('after%d' % number)


def _fill(directory, stat, begun, number):
    index = store.Index(directory)
    for count in range(10 ** 6):
        name = 'run %d %d' % (number, count)
        index.add(name, 'p', stat, segment.keys(b''.join(digests(name, 10))),
                  numpy.arange(10, dtype=numpy.uint64))
        if count == 5:
            begun.set()


class FingerprintsTest(base.TestCase):
    def test_of_a_file(self):
        path = self.temporary_dir() / 'file'
        data = bytearray(os.urandom(300 * BLOCK + 700))
        data[40 * BLOCK:50 * BLOCK] = bytes(10 * BLOCK)
        with path.open('wb') as file:
            file.write(data)
            # a hole
            file.truncate(1000 * BLOCK)
            file.seek(1000 * BLOCK - 5)
            file.write(b'12345')
        expected = path.read_bytes()
        paused = []
        with path.open('rb') as file:
            found = fingerprints.fingerprint(file.fileno(), paused.append)
        numbers = [n for n in range(1000)
                   if any(expected[n * BLOCK:(n + 1) * BLOCK])]
        self.assertEqual(numbers, found.numbers.tolist())
        self.assertEqual(segment.keys(b''.join(
            blocks.digest(expected[n * BLOCK:(n + 1) * BLOCK])
            for n in numbers)).tolist(), found.digests.tolist())
        self.assertEqual(1000 - len(numbers), found.zeros)
        self.assertLess(found.read, 600 * BLOCK)
        self.assertGreater(len(paused), 1)

    def test_empty(self):
        path = self.temporary_dir() / 'file'
        path.write_bytes(b'')
        with path.open('rb') as file:
            found = fingerprints.fingerprint(file.fileno())
        self.assertEqual(([], 0), (found.digests.tolist(), found.zeros))
