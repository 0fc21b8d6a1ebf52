# SPDX-License-Identifier: Apache-2.0
"""Journals: what is kept, and which are refused."""

import os
import random

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import journal
from nova_dedup_migrate.tests import base

SIZE = 1000 * blocks.BLOCK
WATCH = b'w' * journal.WATCH


class JournalTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.path = str(self.temporary_dir() / 'journal')

    def open(self, size=SIZE, target=(1, 2), watch=WATCH):
        found = journal.Journal(self.path, size, target, watch)
        closed = []

        def close():
            if not closed:
                closed.append(True)
                found_close()

        found_close, found.close = found.close, close
        self.addCleanup(close)
        return found

    def digests(self, count):
        return [blocks.digest(b'%d' % n) for n in range(count)]

    def test_kept(self):
        one = self.open()
        one.prove(700, self.digests(20))
        one.prove(999, self.digests(1))
        one.forget(705, 2)
        one.close()
        found = self.open()
        self.assertEqual(
            self.digests(5) + 2 * [journal.EMPTY] + self.digests(20)[7:],
            found.slots(700, 20))
        self.assertEqual(self.digests(1), found.slots(999, 1))
        self.assertEqual(2 * [journal.EMPTY], found.slots(698, 2))
        covered = {number for first, count in found.recorded()
                   for number in range(first, first + count)}
        self.assertTrue({*range(700, 720), 999} <= covered)
        self.assertLess(max(covered), 1000)

    def test_pass(self):
        """What a pass covers is gone, on the disk too."""
        one = self.open()
        one.prove(0, self.digests(1000))
        one.begin_pass([(10, 5), (900, 100)])
        one.close()
        slots = self.open().slots(0, 1000)
        self.assertEqual([*range(10, 15), *range(900, 1000)], [
            number for number, slot in enumerate(slots)
            if slot == journal.EMPTY])

    def test_sparse(self):
        found = journal.Journal(self.path, blocks.MAX_SIZE, (1, 2), WATCH)
        self.addCleanup(found.close)
        found.begin_pass([(0, 1 << 16)])
        self.assertLess(os.stat(self.path).st_blocks * 512, 1 << 20)

    def test_another(self):
        self.open().close()
        for options, match in (
                ({'size': SIZE + 512}, 'disk size'),
                ({'target': (3, 2)}, 'file system'),
                ({'target': (1, 3)}, 'target'),
                ({'watch': b'x' * 32}, 'watch')):
            error = self.assertRaises(errors.JournalUnusable, self.open,
                                      **options)
            self.assertIn('another ' + match, str(error))
            self.assertIn(self.path, str(error))

    def test_handed_over(self):
        """All slots, to the target of the same disk and watch only."""
        one = self.open()
        one.prove(3, [blocks.digest(b'a')])
        one.close()
        new = self.path + '.new'
        for size, watch in ((SIZE * 2, WATCH), (SIZE, b'v' * 32)):
            self.assertRaises(errors.JournalUnusable, journal.hand_over,
                              self.path, new, size, (7, 8), watch)
        journal.hand_over(self.path, new, SIZE, (7, 8), WATCH)
        self.assertFalse(os.path.exists(self.path))
        self.assertRaises(errors.JournalUnusable, journal.Journal, new,
                          SIZE, (1, 2), WATCH)
        found = journal.Journal(new, SIZE, (7, 8), WATCH)
        self.addCleanup(found.close)
        self.assertEqual([blocks.digest(b'a')], found.slots(3, 1))
        self.assertRaises(FileNotFoundError, journal.hand_over, self.path,
                          new, SIZE, (7, 8), WATCH)

    def test_damaged_is_not_handed_over(self):
        for content in b'', b'x' * 50, b'x' * 200:
            with open(self.path, 'wb') as file:
                file.write(content)
            self.assertRaises(errors.JournalUnusable, journal.hand_over,
                              self.path, self.path + '.new', SIZE, (7, 8),
                              WATCH)

    def test_in_use(self):
        self.open()
        error = self.assertRaises(errors.JournalUnusable, self.open)
        self.assertIn('another process', str(error))

    def test_killed_before_the_header(self):
        self.open().close()
        length = os.stat(self.path).st_size
        with open(self.path, 'wb') as file:
            file.truncate(length)
        self.open().prove(0, self.digests(1))

    def test_fuzzed(self):
        """A damaged header is refused, a damaged slot is another digest."""
        one = self.open()
        one.prove(0, self.digests(1000))
        one.close()
        with open(self.path, 'rb') as file:
            good = file.read()
        for seed in range(60):
            source = random.Random(seed)
            data = bytearray(good)
            at = source.randrange(104)
            data[at] ^= 1 << source.randrange(8)
            if source.random() < 0.3:
                del data[source.randrange(1, len(data)):]
            with open(self.path, 'wb') as file:
                file.write(data)
            self.assertRaises(errors.JournalUnusable, self.open)
