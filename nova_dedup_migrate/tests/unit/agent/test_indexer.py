# SPDX-License-Identifier: Apache-2.0
"""What a sweep does with files that come, change and go."""

import os
import threading

import fixtures

from nova_dedup_migrate.agent import indexer
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.tests import base

BLOCK = blocks.BLOCK


class IndexerTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.index = store.Index(str(self.temporary_dir()))
        self.addCleanup(self.index.close)
        self.files = {}
        self.busy = False

    def indexer(self, interval=0.0, rate=1e12, max_load=1000.0):
        found = indexer.Indexer(
            self.index, lambda: self.files, [str(self.directory)],
            interval, rate, lambda: self.busy, max_load)
        self.addCleanup(found.stop)
        return found

    def write(self, name, owner):
        data = os.urandom(BLOCK)
        (self.directory / name).write_bytes(data)
        self.files[str(self.directory / name)] = owner
        return blocks.digest(data)

    def found(self, digest, owner):
        return self.index.find([digest], [owner]) != [None]

    def test_sweep(self):
        one, two = self.write('one', 'p1'), self.write('two', 'p2')
        sweeping = self.indexer()
        sweeping.sweep()
        self.assertTrue(self.found(one, 'p1') and self.found(two, 'p2'))
        self.assertFalse(self.found(one, 'p2'))

    def test_owner_changes(self):
        one = self.write('one', 'image:1')
        self.indexer().sweep()
        self.files = dict.fromkeys(self.files, store.PUBLIC)
        self.indexer().sweep()
        self.assertTrue(self.found(one, store.PUBLIC))
        self.assertFalse(self.found(one, 'image:1'))

    def test_gone(self):
        one, two = self.write('one', 'p'), self.write('two', 'p')
        self.indexer().sweep()
        os.unlink(self.directory / 'one')
        del self.files[str(self.directory / 'two')]
        self.indexer().sweep()
        self.assertFalse(self.found(one, 'p') or self.found(two, 'p'))

    def test_changed(self):
        """It is read again, but not all the time."""
        self.write('one', 'p')
        self.indexer().sweep()
        new = self.write('one', 'p')
        self.indexer().sweep()
        self.assertFalse(self.found(new, 'p'))
        self.useFixture(patched('DISK_AGE', 0.0))
        self.indexer().sweep()
        self.assertTrue(self.found(new, 'p'))

    def test_outside(self):
        """What is in no directory with disks is left out."""
        outside = self.temporary_dir() / 'disk'
        outside.write_bytes(b'x' * BLOCK)
        self.files[str(outside)] = 'p'
        one = self.write('one', 'p')
        self.indexer().sweep()
        self.assertTrue(self.found(one, 'p'))
        self.assertIsNone(self.index.file(str(outside)))

    def test_in_the_background(self):
        one = self.write('one', 'p')
        self.useFixture(patched('_WAIT', 0.01))
        self.busy = True
        running = self.indexer(interval=0.01)
        priorities = []
        self.files = Noticed(self.files, lambda: priorities.append(
            os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
        running.start()
        self.eventually(lambda: priorities, 'a sweep begins')
        self.assertFalse(self.found(one, 'p'))
        self.busy = False
        self.eventually(lambda: self.found(one, 'p'), 'it is indexed')
        self.assertEqual(19, priorities[0])
        running.stop()

    def test_stops_while_it_waits(self):
        self.write('one', 'p')
        self.useFixture(patched('_WAIT', 0.01))
        running = self.indexer(interval=0.01, max_load=0.0)
        running._max_load = -1.0
        running.start()
        running.stop()
        self.assertFalse(running._thread.is_alive())


class Noticed(dict):
    def __init__(self, items, notice):
        super().__init__(items)
        self._notice = notice

    def items(self):
        self._notice()
        return super().items()


def patched(name, value):
    return fixtures.MonkeyPatch(
        'nova_dedup_migrate.agent.indexer.' + name, value)
