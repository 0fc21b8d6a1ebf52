# SPDX-License-Identifier: Apache-2.0
"""Client, bus and agent together, over fake://."""

import hashlib
from unittest import mock

from oslo_config import cfg
from oslo_config import fixture as config_fixture
from oslo_messaging import conffixture

from nova_dedup_migrate.agent import emulator
from nova_dedup_migrate.agent import endpoint
from nova_dedup_migrate.agent import facts
from nova_dedup_migrate.agent import incoming
from nova_dedup_migrate.agent import link
from nova_dedup_migrate.agent import link_rates
from nova_dedup_migrate.agent import storage_rates
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.identity import challenge
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import transport
from nova_dedup_migrate.tests import base

INSTANCE = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
MIGRATION = '1a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
HOST = 'compute2'


class EndToEndTest(base.TestCase):
    def setUp(self):
        super().setUp()
        conf = self.useFixture(config_fixture.Config(cfg.ConfigOpts())).conf
        self.useFixture(conffixture.ConfFixture(conf, 'fake://'))
        bus = transport.get_transport(conf)
        self.addCleanup(bus.cleanup)
        self.root = self.temporary_dir() / 'instances'
        self.root.mkdir()
        self.disk = self.root / 'disk'
        self.disk.write_bytes(bytes(range(256)) * 64)
        emulators = mock.create_autospec(emulator.Emulators, instance=True)
        emulators.describe.return_value = emulator.Emulator(True, '10.0.3')
        site = nodes.Site(roots=(str(self.root),))
        self.events = incoming.IncomingEvents()
        self.guests = mock.Mock(spec=['guest_state', 'forget_guest'])
        self.receiver = link.Receiver('127.0.0.1', range(0, 1))
        server = transport.get_server(bus, HOST, [endpoint.Endpoint(
            facts.Facts(HOST, '1.2', site, emulators,
                        storage_rates.StorageRates(site, 0, 0, 0)),
            self.events, self.receiver, self.guests)])
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        self.api = api.AgentAPI(bus, 20.0)

    def ask(self, *paths):
        disks = [nodes.Disk('vd%d' % number, (nodes.Node('file', str(path)),))
                 for number, path in enumerate(paths)]
        with challenge.challenge(disks) as made:
            return self.api.facts({}, HOST, objects.DedupFactsRequest(
                instance_uuid=INSTANCE, migration_uuid=MIGRATION,
                disks=made.disks, sample_key=made.sample_key))

    def test_hello(self):
        self.assertIsNone(self.api.hello({}, HOST))

    def test_disks(self):
        reply = self.ask(self.disk, self.root / 'none')
        self.assertTrue(reply.patched)
        self.assertEqual(['shared', 'none'],
                         [disk.copy for disk in reply.disks])

    def test_hostile_paths(self):
        outside = self.root.parent / 'secret'
        outside.write_bytes(b'secret')
        link_to_it = self.root / 'link'
        link_to_it.symlink_to(outside)
        content = hashlib.sha256(outside.read_bytes()).hexdigest()
        reply = self.ask(outside, link_to_it, '/etc/shadow', '/dev/null',
                         '/proc/self/mem', str(self.root) + '/../secret')
        for disk in reply.disks:
            self.assertEqual('none', disk.copy)
            self.assertNotIn(content, disk.reason)

    def test_request_of_a_wrong_class(self):
        error = self.assertRaises(
            errors.AgentUnavailable, self.api._call, {}, HOST, 'facts',
            objects.DedupFactsReply, 20.0,
            request=objects.DedupIncomingRequest(
                instance_uuid=INSTANCE, migration_uuid=MIGRATION))
        self.assertIn('is no DedupFactsRequest', error.reason)

    def test_incoming(self):
        self.ask(self.disk)
        self.events.on_event(INSTANCE, incoming.EVENT,
                             {'info': {'record-pages': 5}})
        reply = self.api.incoming({}, HOST, INSTANCE, MIGRATION)
        self.assertTrue(reply.known)
        self.assertEqual(5, reply.record_pages)

    def test_no_event(self):
        reply = self.api.incoming({}, HOST, INSTANCE, MIGRATION, wait=0.0)
        self.assertFalse(reply.known)
        self.assertIn('has not sent', reply.reason)

    def test_guest_state(self):
        for state in objects.GUEST_STATES:
            self.guests.guest_state.return_value = state
            self.assertEqual(state, self.api.guest_state({}, HOST, INSTANCE))
        self.guests.guest_state.assert_called_with(INSTANCE)

    def test_guest_state_that_libvirt_does_not_tell(self):
        error = hypervisor_errors.HypervisorUnavailable(
            uri='qemu:///system', reason='gone')
        self.guests.guest_state.side_effect = error
        self.guests.forget_guest.side_effect = error
        for method in (self.api.guest_state, self.api.forget_guest):
            error = self.assertRaises(errors.AgentUnavailable, method, {},
                                      HOST, INSTANCE)
            self.assertIn('gone', error.reason)

    def test_forget_guest(self):
        for known in (True, False):
            self.guests.forget_guest.return_value = known
            self.assertIs(known, self.api.forget_guest({}, HOST, INSTANCE))
        self.guests.forget_guest.assert_called_with(INSTANCE)

    def test_link(self):
        rates = link_rates.LinkRates(self.api, 'compute1', 0.1, 1 << 20, 60)
        self.assertGreater(rates.rate({}, HOST), 1e6)

    def test_link_is_busy(self):
        with self.receiver._busy, mock.patch.object(link, 'PATIENCE', 0.01):
            error = self.assertRaises(
                errors.AgentUnavailable, self.api.link_probe, {}, HOST,
                objects.DedupLinkRequest(source='x', seconds=1.0, bytes=1))
        self.assertIn('another measurement', error.reason)

