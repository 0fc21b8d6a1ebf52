# SPDX-License-Identifier: Apache-2.0
"""The source that reads backups, with a reader that has one in memory."""

import concurrent.futures
import random
import tempfile
import threading

from nova_dedup_migrate.backups import errors as backup_errors
from nova_dedup_migrate.backups import frames
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage.sources import backup
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.storage.sources import conformance

_SIZE = backup.WINDOW + 40 * blocks.BLOCK + 512


class Reader:
    """A backups.reader.BackupReader of bytes."""

    def __init__(self, content, unit=blocks.BLOCK):
        self.content = content
        self.unit = unit
        self.size = len(content)
        self.missing = set()
        self.requests = []
        self.failure = None
        self.closed = False

    def open(self):
        if self.failure:
            raise self.failure
        file = tempfile.TemporaryFile()
        for at in range(0, self.size, self.unit):
            file.write(blocks.digest(self.content[at:at + self.unit]))
        file.flush()
        return file

    def stream(self, extents):
        self.requests += extents
        for offset, length in extents:
            # not in the order of offsets
            for at in reversed(range(offset, offset + length, self.unit)):
                if self.failure:
                    raise self.failure
                end = min(at + self.unit, self.size)
                data = self.content[at:end]
                if at in self.missing:
                    yield frames.Frame(frames.MISSING, at, end - at)
                elif any(data):
                    yield frames.Frame(frames.DATA, at, end - at, data)

    def close(self):
        self.closed = True


class BackupSourceTest(conformance.Conformance, base.TestCase):

    def setUp(self):
        super().setUp()
        chance = random.Random(3)
        self.volume = b''.join(
            chance.choice((bytes, chance.randbytes))(blocks.BLOCK)
            for _ in range(blocks.count(_SIZE)))[:_SIZE]
        self.reader = Reader(self.volume)
        self.source = backup.BackupSource(self.reader)
        self.addCleanup(self.source.close)
        last = _SIZE // blocks.BLOCK * blocks.BLOCK
        self.content = {at: self.volume[at:at + blocks.BLOCK]
                        for at in (*range(0, last, 30 * blocks.BLOCK), last)}

    def every(self):
        return [blocks.Block(
            blocks.digest(self.volume[at:at + blocks.BLOCK]), at,
            blocks.length(at // blocks.BLOCK, _SIZE))
            for at in range(0, _SIZE, blocks.BLOCK)]

    def with_data(self):
        """The first block that is not zeros."""
        return [block for block in self.every()
                if block.digest != blocks.ZERO_DIGEST][:1]

    def test_forwards_each_window_is_fetched_once(self):
        every, found = self.every(), []
        for start in range(0, len(every), 64):
            found += self.source.read(every[start:start + 64])
        self.assertTrue(b''.join(found) == self.volume)
        self.assertEqual([(0, backup.WINDOW),
                          (backup.WINDOW, _SIZE - backup.WINDOW)],
                         self.reader.requests)

    def test_the_next_window_is_fetched_while_one_is_written(self):
        self.source.read(self.with_data())
        # Waits for what was begun before.
        self.source._pool.submit(int).result(60)
        self.assertEqual([(0, backup.WINDOW),
                          (backup.WINDOW, _SIZE - backup.WINDOW)],
                         self.reader.requests)

    def test_closing_ends_what_waits_for_the_network(self):
        begun, ended = threading.Event(), threading.Event()

        def stream(extents):
            begun.set()
            ended.wait(60)
            raise backup_errors.BackupError(reason='it has been closed')
            yield

        self.reader.stream = stream
        self.reader.close = ended.set
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            reads = [pool.submit(self.source.read, [block])
                     for block in (self.with_data()[0], self.every()[-1])]
            begun.wait(60)
            self.source.close()
            for read in reads:
                self.assertRaises(errors.SourceFailed, read.result, 60)

    def test_have_reads_nothing(self):
        self.source.have(self.every())
        self.assertEqual([], self.reader.requests)

    def test_changed_blocks_are_not_in_it(self):
        data = b'\1' + self.volume[1:blocks.BLOCK]
        block = blocks.Block(blocks.digest(data), 0, blocks.BLOCK)
        self.assertEqual([False], self.source.have([block]))
        self.assertEqual([None], self.source.read([block]))
        self.assertEqual([], self.reader.requests)

    def test_what_the_store_lacks_is_none(self):
        every = [block for block in self.every()
                 if block.digest != blocks.ZERO_DIGEST]
        self.reader.missing.add(every[1].offset)
        found = self.source.read(every[:3])
        self.assertEqual([False, True, False],
                         [data is None for data in found])

    def test_no_more_is_kept_than_windows(self):
        self.source._windows.update(
            dict.fromkeys(range(100, 100 + backup.KEPT), {}))
        self.source.read(self.every()[:1])
        self.assertLessEqual(len(self.source._windows), backup.KEPT)

    def test_failures(self):
        self.reader.failure = backup_errors.AssistUnavailable(
            host='backup-1', reason='it is gone')
        wanted = self.with_data()
        self.assertRaises(errors.SourceFailed, self.source.read, wanted)
        self.reader.failure = None
        self.assertIsNotNone(self.source.read(wanted)[0])
        self.reader.failure = backup_errors.BackupError(reason='no')
        self.assertRaises(errors.SourceFailed, backup.BackupSource,
                          self.reader)
        self.source.close()
        self.assertTrue(self.reader.closed)
        self.reader.failure = None
        self.assertRaises(errors.SourceFailed, self.source.read, wanted)

    def test_other_units_are_refused(self):
        other = Reader(self.volume, 4096)
        error = self.assertRaises(errors.SourceFailed, backup.BackupSource,
                                  other)
        self.assertIn('of 4096 bytes', str(error))
        self.assertTrue(other.closed)
