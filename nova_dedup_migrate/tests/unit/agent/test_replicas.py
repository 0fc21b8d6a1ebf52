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
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.tests import base

BLOCK = blocks.BLOCK
INSTANCE = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
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
        self.data = os.urandom(2 * BLOCK)
        self.replicas = self.open()

    def open(self, max_bytes=1 << 30):
        return replicas.Replicas(str(self.directory), max_bytes,
                                 self.filled, self.index,
                                 self.here.__contains__, self.api,
                                 self.interval)

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
                        json.dumps({**good, 'project': 7}).encode()):
            note.write_bytes(content)
            self.assertEqual(1, len(self.replicas.list().replicas))
            self.replicas.expire()
        (self.directory / 'other.json').write_text('{}')
        self.replicas.cancel(INSTANCE)
        self.assertEqual([note.name, 'other.json'], self.names())
