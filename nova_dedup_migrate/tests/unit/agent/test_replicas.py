# SPDX-License-Identifier: Apache-2.0
"""Replicas: leases, space, notes, restarts."""

import importlib.util
import json
import os
import unittest
from unittest import mock

if importlib.util.find_spec('libvirt') is None:
    raise unittest.SkipTest('libvirt-python is not installed')

from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import fillings
from nova_dedup_migrate.agent import replicas
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.tests import base

BLOCK = blocks.BLOCK
INSTANCE = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
MIGRATION = '2a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
PREPARATION = '1a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'


class ReplicasTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.index = store.Index(str(self.temporary_dir()))
        self.addCleanup(self.index.close)
        self.filled = mock.create_autospec(fillings.Fillings, instance=True)
        self.filled.fill.side_effect = self.fill
        self.filled.filling.return_value = disk_objects.DedupFillingReply(
            state='unknown', reason='nothing is known')
        self.here = set()
        self.api = mock.create_autospec(api.AgentAPI, instance=True)
        self.interval = 600.0
        self.busy = False
        self.data = os.urandom(2 * BLOCK)
        self.replicas = self.open()

    def open(self, max_bytes=1 << 30):
        return replicas.Replicas(str(self.directory), max_bytes,
                                 self.filled, self.index,
                                 self.here.__contains__, self.api,
                                 self.interval, lambda: self.busy)

    def fill(self, ctxt, request, replica=False):
        self.request = request
        with open(request.image.path, 'r+b') as file:
            file.write(self.data)
            found = fingerprints.fingerprint(file.fileno())
        self.index.add(request.image.path, request.project_id, found.stat,
                       found.digests, found.numbers)
        return disk_objects.DedupFillingReply(state='done')

    def prepare(self, target='vda', lease=60.0, size=8 * BLOCK,
                data=2 * BLOCK):
        return self.replicas.prepare({}, replica_objects.DedupPrepareRequest(
            lease=lease, data=data, fill=disk_objects.DedupFillRequest(
                instance_uuid=INSTANCE, migration_uuid=PREPARATION,
                project_id='p1', target=target, size=size,
                watch='0' * 64, source='compute1',
                image=disk_objects.DedupImageFile(path='/etc/passwd',
                                                  format='qcow2'))))

    def names(self):
        return sorted(os.listdir(self.directory))

    def found(self, owner):
        return self.index.find([blocks.digest(self.data[:BLOCK])],
                               [owner])[0]

    def test_prepared(self):
        """The file is the agent's choice; its content is found."""
        self.prepare()
        path = str(self.directory / (INSTANCE + '.vda'))
        self.assertEqual((path, 'raw', False), (
            self.request.image.path, self.request.image.format,
            self.request.reuse))
        self.assertEqual(8 * BLOCK, os.stat(path).st_size)
        self.assertEqual(path, self.found('p1').file.path)
        self.assertIsNone(self.found('p2'))
        self.assertEqual({path: 'p1'}, self.replicas.files())

    def test_again(self):
        """What is there is kept, if it has the size."""
        self.prepare()
        self.prepare()
        self.assertTrue(self.request.reuse)
        self.filled.abort.assert_called_once_with(PREPARATION)
        self.prepare(size=9 * BLOCK)
        self.assertFalse(self.request.reuse)

    def test_listed(self):
        self.prepare()
        found, = self.replicas.list().replicas
        self.assertEqual((INSTANCE, 'vda', 'p1', 'compute1', 'done',
                          8 * BLOCK), (
            found.instance_uuid, found.target, found.project_id,
            found.source, found.state, found.size))
        self.assertEqual(found.expires,
                         self.open().list().replicas[0].expires)

    def test_cancelled(self):
        self.prepare()
        self.prepare(target='vdb')
        self.assertEqual(0, self.replicas.cancel(PREPARATION))
        self.assertEqual(2, self.replicas.cancel(INSTANCE))
        self.assertEqual([], self.names())
        self.assertIsNone(self.found('p1'))
        self.filled.abort.assert_called_with(PREPARATION)
        self.api.forget_disks.assert_called_with({}, 'compute1',
                                                 PREPARATION)

    def test_lease(self):
        self.prepare()
        self.prepare(target='vdb', lease=0.0)
        self.replicas.expire()
        self.assertEqual([INSTANCE + '.vda', INSTANCE + '.vda.json'],
                         self.names())

    def test_instance_has_come(self):
        self.prepare()
        self.here.add(INSTANCE)
        self.replicas.expire()
        self.assertEqual([], self.names())

    def test_expires_in_the_background(self):
        self.prepare(lease=0.0)
        with mock.patch.object(replicas, 'INTERVAL', 0.01):
            self.replicas.start()
            self.addCleanup(self.replicas.stop)
            self.eventually(lambda: not self.names(), 'it is removed')

    def watched(self, watch='0' * 64, dirty=0, size=8 * BLOCK):
        """What the source's agent answers."""
        self.api.watch_disk.return_value = watch_objects.DedupWatchReply(
            state='watching', size=size, granularity=BLOCK, watch=watch,
            dirty=dirty, data=BLOCK)

    def state(self, state):
        self.filled.filling.return_value = disk_objects.DedupFillingReply(
            state=state)

    def age(self, seconds):
        """Let all builds have begun that long ago."""
        for path in self.directory.glob('*.json'):
            note = json.loads(path.read_text())
            path.write_text(json.dumps({
                **note, 'begun': note['begun'] - seconds}))

    def done(self):
        self.prepare()
        self.state('done')
        self.replicas.refresh()

    def test_refreshed(self):
        """With the watch of the last time, once it is time."""
        self.prepare()
        self.state('running')
        self.age(1000)
        self.replicas.refresh()
        self.assertEqual(0.0, self.replicas.list().replicas[0].refreshed)
        self.state('done')
        self.watched()
        self.replicas.refresh()
        self.api.watch_disk.assert_called_once()
        found = self.replicas.list().replicas[0]
        self.assertGreater(found.refreshed, 0.0)
        ctxt, host, request = self.api.watch_disk.call_args.args
        self.assertEqual(('compute1', INSTANCE, PREPARATION, 'vda', True,
                          '0' * 64), (
            host, request.instance_uuid, request.migration_uuid,
            request.target, request.replica, request.resume))
        self.assertEqual((True, '0' * 64, 8 * BLOCK, True, 'p1'), (
            self.request.reuse, self.request.watch, self.request.size,
            self.request.source_blocks, self.request.project_id))
        self.filled.abort.assert_not_called()
        # it is not time again
        self.replicas.refresh()
        self.api.watch_disk.assert_called_once()

    def test_not_refreshed_before_it_was_built(self):
        """Nothing goes on that was interrupted."""
        self.prepare()
        self.age(1000)
        for state in 'failed', 'unknown':
            self.state(state)
            self.replicas.refresh()
        self.api.watch_disk.assert_not_called()

    def test_watch_is_gone(self):
        """What the journal has is of another record of writes."""
        self.done()
        self.age(1000)
        self.watched('1' * 64)
        self.replicas.refresh()
        self.filled.abort.assert_called_once_with(PREPARATION)
        self.assertEqual('1' * 64, self.request.watch)
        self.age(1000)
        self.replicas.refresh()
        self.assertEqual('1' * 64,
                         self.api.watch_disk.call_args.args[2].resume)

    def test_clock_was_set_back(self):
        self.done()
        self.age(-10000)
        self.watched()
        self.replicas.refresh()
        self.api.watch_disk.assert_called_once()

    def test_refreshed_one_at_a_time(self):
        """The one that waits longest."""
        self.done()
        self.prepare(target='vdb')
        self.replicas.refresh()
        self.age(1000)
        self.watched()
        self.replicas.refresh()
        self.api.watch_disk.assert_called_once()
        self.assertEqual('vda', self.request.target)
        self.state('running')
        self.replicas.refresh()
        self.api.watch_disk.assert_called_once()
        self.state('done')
        self.replicas.refresh()
        self.assertEqual('vdb', self.request.target)

    def test_refreshed_after_a_migration(self):
        self.done()
        self.age(1000)
        self.watched()
        self.busy = True
        self.replicas.refresh()
        self.api.watch_disk.assert_not_called()
        self.busy = False
        self.replicas.refresh()
        self.api.watch_disk.assert_called_once()

    def test_source_does_not_answer(self):
        self.done()
        self.age(1000)
        self.api.watch_disk.side_effect = rpc_errors.AgentUnavailable(
            'compute1', 'it is away')
        self.replicas.refresh()
        found = self.replicas.list().replicas[0]
        self.assertEqual('failed', found.state)
        self.assertIn('it is away', found.reason)
        # not at once again
        self.replicas.refresh()
        self.api.watch_disk.assert_called_once()
        self.age(1000)
        self.api.watch_disk.side_effect = None
        self.watched()
        self.replicas.refresh()
        self.assertEqual(('done', ''), (
            self.replicas.list().replicas[0].state,
            self.replicas.list().replicas[0].reason))

    def test_space_of_a_refresh(self):
        """What was written may be all new."""
        self.replicas = self.open(3 * BLOCK)
        self.done()
        for dirty, refused in ((BLOCK, False), (2 * BLOCK, True)):
            self.age(1000)
            self.watched(dirty=dirty)
            self.replicas.refresh()
            self.assertEqual(refused, 'replicas_max_bytes' in
                             self.replicas.list().replicas[0].reason)

    def test_no_interval(self):
        """QEMU does not go on recording writes."""
        self.interval = 0.0
        self.replicas = self.open()
        self.done()
        self.replicas.refresh()
        self.replicas.refresh()
        self.api.forget_disks.assert_called_once_with({}, 'compute1',
                                                      PREPARATION)
        self.api.watch_disk.assert_not_called()
        self.assertEqual('', self.take())

    def take(self, target='vda'):
        return self.replicas.take(replica_objects.DedupTakeRequest(
            instance_uuid=INSTANCE, migration_uuid=MIGRATION,
            target=target))

    def test_taken(self):
        """Only one migration gets the journal, even if it fails."""
        self.done()
        self.filled.hand_over.return_value = True
        self.assertEqual('', self.take('vdb'))
        self.assertEqual('0' * 64, self.take())
        self.filled.hand_over.assert_called_once_with(
            PREPARATION, 'vda', MIGRATION)
        self.assertEqual('', self.take())
        self.age(1000)
        self.watched('1' * 64)
        self.replicas.refresh()
        self.assertIsNone(self.api.watch_disk.call_args.args[2].resume)

    def test_taken_without_a_journal(self):
        self.done()
        self.filled.hand_over.return_value = False
        self.assertEqual('', self.take())

    def test_cancelled_while_it_is_refreshed(self):
        self.done()
        self.age(1000)
        self.watched()
        reply = self.api.watch_disk.return_value

        def cancel(*args):
            self.replicas.cancel(INSTANCE)
            return reply

        self.api.watch_disk.side_effect = cancel
        self.replicas.refresh()
        self.assertEqual([], self.names())

    def test_space(self):
        self.replicas = self.open(3 * BLOCK)
        self.prepare()
        error = self.assertRaises(errors.FillRefused, self.prepare,
                                  target='vdb')
        self.assertIn('replicas_max_bytes', str(error))
        # the same one needs no more
        self.prepare()

    def test_name_that_is_a_path(self):
        for target in ('../vda', '/vda', 'vda.json', ''):
            self.assertRaises(errors.FillRefused, self.prepare,
                              target=target)
        self.assertEqual([], self.names())

    def test_damaged_notes(self):
        """They are left out; nothing else is touched."""
        self.prepare()
        note = self.directory / (INSTANCE + '.vdb.json')
        good = json.loads((self.directory / (
            INSTANCE + '.vda.json')).read_text())
        for content in (b'', b'{', b'[]', b'\xff', b'1' * 5000,
                        json.dumps({**good, 'expires': 'x'}).encode(),
                        json.dumps({**good, 'project': 7}).encode(),
                        json.dumps({**good, 'images': 7}).encode(),
                        json.dumps({**good, 'begun': True}).encode(),
                        json.dumps({**good, 'more': 7}).encode()):
            note.write_bytes(content)
            self.assertEqual(1, len(self.replicas.list().replicas))
            self.replicas.expire()
        (self.directory / 'other.json').write_text('{}')
        self.replicas.cancel(INSTANCE)
        self.assertEqual([note.name, 'other.json'], self.names())
