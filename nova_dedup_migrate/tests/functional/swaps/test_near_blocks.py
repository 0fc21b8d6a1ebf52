# SPDX-License-Identifier: Apache-2.0
"""Agents have some of a backup's blocks, over TLS."""

import importlib.util
import types
import unittest
from unittest import mock

if importlib.util.find_spec('libvirt') is None:
    raise unittest.SkipTest('libvirt-python is not installed')

from nova_dedup_migrate.agent import disk_channel
from nova_dedup_migrate.agent import owners
from nova_dedup_migrate.compute import near_blocks
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.storage.sources import base
from nova_dedup_migrate.tests.functional.swaps import volume
from nova_dedup_migrate.tests.unit.storage.channel import certificates

VOLUME = '1a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
IMAGE = '2a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
_INSTANCE = types.SimpleNamespace(
    uuid='0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f', project_id='p1',
    image_ref=IMAGE)
#: Blocks of the volume that are held somewhere.
_PART = 16


class NearBlocksTest(volume.VolumeCase):

    def setUp(self):
        super().setUp()
        self.authority = certificates.Authority(self.temporary_dir())
        self.indexes, self.channels = {}, {}
        for host in ('own', 'neighbour'):
            self.indexes[host] = store.Index(str(self.directory / host))
            self.addCleanup(self.indexes[host].close)
            self.channels[host] = disk_channel.DiskChannel(
                host, '127.0.0.1', 0, self.authority.host(host),
                self.indexes[host], [str(self.directory)], 0.0,
                owners.allowed)
            self.channels[host].start()
            self.addCleanup(self.channels[host].stop)
        self.agents = mock.create_autospec(api.AgentAPI, instance=True)
        self.agents.channel_offer.side_effect = (
            lambda ctxt, host, request: self.channels[host].offer(request))
        # The agents come before the backup, however busy they are.
        for source in (near_blocks.OwnHostSource,
                       near_blocks.neighbour.NeighbourSource):
            patcher = mock.patch.object(source, 'cost',
                                        base.Cost(rate=1e12, latency=0.0))
            self.addCleanup(patcher.stop)
            patcher.start()

    def hold(self, host, first, owner, content=None):
        """Have a host hold _PART blocks of the volume, in a file."""
        data = self.image.read_bytes()[first * blocks.BLOCK:][
            :_PART * blocks.BLOCK]
        path = self.directory / ('%s-%d' % (host, first))
        path.write_bytes(data)
        with path.open('rb') as file:
            found = fingerprints.fingerprint(file.fileno())
        if content is not None:
            path.write_bytes(content * len(data))
        self.indexes[host].add(str(path), owner, found.stat, found.digests,
                               found.numbers)

    def sources(self):
        found = self.authority.host('own')
        conf = types.SimpleNamespace(
            host='own', dedup_migrate=types.SimpleNamespace(
                channel_ca_file=found.authority,
                channel_cert_file=found.certificate,
                channel_key_file=found.key,
                disk_neighbours=['neighbour', 'own']))
        return near_blocks.sources(conf, self.agents, _INSTANCE, VOLUME)

    def moved(self):
        """Fill and mirror, with all bytes compared; return Filled."""
        record, reader = self.watch(), self.backup()
        self.read()
        filled = self.fill(record, reader, self.sources())
        self.assertEqual([], self.wrong())
        self.one.mirror()
        self.assert_same(self.one)
        return filled

    def test_own_host_and_neighbour(self):
        self.hold('own', 0, 'p1')
        self.hold('neighbour', _PART, owners.of_image(IMAGE))
        self.assertEqual(2 * _PART * blocks.BLOCK, self.moved().agents)

    def test_content_of_other_projects(self):
        self.hold('own', 0, 'p2')
        self.hold('neighbour', _PART, owners.of_image(VOLUME))
        self.assertEqual(0, self.moved().agents)

    def test_an_index_that_is_wrong(self):
        self.hold('own', 0, 'p1', b'x')
        self.assertEqual(0, self.moved().agents)

    def test_agents_that_are_down(self):
        self.agents.channel_offer.side_effect = (
            lambda ctxt, host, request: self.fail_of(host))
        filled = self.moved()
        self.assertEqual(0, filled.agents)
        self.assertGreater(filled.fetched, 0)

    def fail_of(self, host):
        raise rpc_errors.AgentUnavailable(host, 'it is down')

    def test_no_certificates(self):
        conf = types.SimpleNamespace(
            host='own', dedup_migrate=types.SimpleNamespace(
                channel_ca_file='/nonexistent',
                channel_cert_file='/nonexistent',
                channel_key_file='/nonexistent', disk_neighbours=[]))
        self.assertEqual([], near_blocks.sources(
            conf, self.agents, _INSTANCE, VOLUME))
        self.agents.channel_offer.assert_not_called()
