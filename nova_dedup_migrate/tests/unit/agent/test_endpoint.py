# SPDX-License-Identifier: Apache-2.0
"""Client, bus and agent together, over fake://."""

import hashlib
import importlib.util
import unittest
from unittest import mock

from oslo_config import cfg
from oslo_config import fixture as config_fixture
from oslo_messaging import conffixture

if importlib.util.find_spec('libvirt') is None:
    raise unittest.SkipTest('libvirt-python is not installed')

from nova_dedup_migrate.agent import disk_channel
from nova_dedup_migrate.agent import disks
from nova_dedup_migrate.agent import emulator
from nova_dedup_migrate.agent import endpoint
from nova_dedup_migrate.agent import errors as agent_errors
from nova_dedup_migrate.agent import facts
from nova_dedup_migrate.agent import fillings
from nova_dedup_migrate.agent import incoming
from nova_dedup_migrate.agent import link
from nova_dedup_migrate.agent import link_rates
from nova_dedup_migrate.agent import local
from nova_dedup_migrate.agent import owners
from nova_dedup_migrate.agent import peers
from nova_dedup_migrate.agent import remains
from nova_dedup_migrate.agent import storage_rates
from nova_dedup_migrate.agent import surveys
from nova_dedup_migrate.agent import watchings
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.identity import challenge
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import survey_objects
from nova_dedup_migrate.rpc import transport
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.tests import base

INSTANCE = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
MIGRATION = '1a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
HOST = 'compute2'


class Loopback(peers.Peers):
    """Both hosts are this one."""

    def _problem(self, address, port):
        return ''


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
        self.disks = mock.create_autospec(disks.Disks, instance=True)
        self.disks.channel = mock.create_autospec(
            disk_channel.DiskChannel, instance=True)
        self.disks.fillings = mock.create_autospec(fillings.Fillings,
                                                   instance=True)
        self.disks.watchings = mock.create_autospec(watchings.Watchings,
                                                    instance=True)
        self.disks.owners = mock.create_autospec(owners.Owners,
                                                 instance=True)
        emulators.describe.return_value = emulator.Emulator(True, '10.0.3')
        site = nodes.Site(roots=(str(self.root),))
        self.events = incoming.IncomingMigrations()
        self.guests = mock.create_autospec(local.LocalLibvirt, instance=True)
        self.guests.guest_state_at_once.return_value = 'arriving'
        self.remains = mock.create_autospec(remains.Remains, instance=True)
        self.surveys = mock.create_autospec(surveys.Surveys, instance=True)
        self.receiver = link.Receiver('127.0.0.1', range(0, 1))
        server = transport.get_server(bus, HOST, [endpoint.Endpoint(
            facts.Facts(HOST, '1.2', site, emulators,
                        storage_rates.StorageRates(site, 0, 0, 0)),
            self.events, self.receiver, self.guests, self.remains,
            self.surveys, self.disks)])
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        self.bus = bus
        self.api = api.AgentAPI(bus, 20.0)

    def test_watched_disks(self):
        reply = watch_objects.DedupWatchReply(
            state='watching', size=1 << 20, granularity=32768,
            watch='ab' * 32, sample=['cd' * 32])
        self.disks.watchings.watch.return_value = reply
        self.disks.watchings.arm.side_effect = agent_errors.WatchRefused(
            target='vda', instance=INSTANCE, reason='nothing is proven')
        self.disks.watchings.release.return_value = False
        self.disks.have.return_value = 3
        found = self.api.watch_disk({}, HOST, watch_objects.DedupWatchRequest(
            instance_uuid=INSTANCE, migration_uuid=MIGRATION, target='vda'))
        self.assertEqual((1 << 20, ['cd' * 32]), (found.size, found.sample))
        error = self.assertRaises(errors.AgentRefused, self.api.arm_disk, {},
                                  HOST, MIGRATION, 'vda')
        self.assertIn('nothing is proven', str(error))
        self.assertFalse(self.api.release_disk({}, HOST, MIGRATION, 'vda'))
        self.assertTrue(self.api.forget_disks({}, HOST, MIGRATION))
        self.disks.watchings.forget.assert_called_once_with(MIGRATION)
        self.assertEqual(3, self.api.have_blocks(
            {}, HOST, watch_objects.DedupHaveRequest(
                project_id='p1', digests=['ef' * 32])))

    def test_channel_offer(self):
        request = disk_objects.DedupChannelRequest(
            host='compute1', migration_uuid=MIGRATION, project_id='p1')
        self.disks.channel.offer.return_value = (
            disk_objects.DedupChannelOffer(
                host=HOST, address='192.0.2.2', port=49216,
                ticket='ab' * 32))
        offer = self.api.channel_offer({}, HOST, request)
        self.assertEqual((49216, 'ab' * 32), (offer.port, offer.ticket))
        seen, = self.disks.channel.offer.call_args.args
        self.assertEqual(('compute1', 'p1', None, []), (
            seen.host, seen.project_id, seen.target, seen.images))

    def test_channel_offer_is_refused(self):
        self.disks.channel.offer.side_effect = (
            agent_errors.ChannelUnavailable(host=HOST, reason='no key'))
        error = self.assertRaises(
            errors.AgentRefused, self.api.channel_offer, {}, HOST,
            disk_objects.DedupChannelRequest(
                host='compute1', migration_uuid=MIGRATION,
                project_id='p1'))
        self.assertIn('no key', str(error))

    def fill_request(self):
        return disk_objects.DedupFillRequest(
            instance_uuid=INSTANCE, migration_uuid=MIGRATION,
            project_id='p1', target='vda', size=1 << 30, watch='0' * 64,
            source='compute1', image=disk_objects.DedupImageFile(
                path='/var/lib/nova/instances/x/disk', format='qcow2'))

    def test_disk_is_filled(self):
        running = disk_objects.DedupFillingReply(
            state='running', done=1, total=2, sources=[
                disk_objects.DedupSourceBytes(name='local', bytes=7)])
        self.disks.fillings.fill.return_value = running
        self.disks.fillings.filling.return_value = running
        reply = self.api.fill_disk({}, HOST, self.fill_request())
        self.assertEqual('running', reply.state)
        seen = self.disks.fillings.fill.call_args.args[1]
        self.assertEqual('qcow2', seen.image.format)
        reply = self.api.filling({}, HOST, MIGRATION, 'vda')
        self.assertEqual([('local', 7)], [
            (each.name, each.bytes) for each in reply.sources])
        self.assertTrue(self.api.abort_filling({}, HOST, MIGRATION))
        self.disks.fillings.abort.assert_called_once_with(MIGRATION)

    def test_image_store(self):
        self.disks.fillings.fill.return_value = (
            disk_objects.DedupFillingReply(state='running'))
        store = image_objects.DedupImageStore(
            endpoint='https://glance', token='secret', images=[
                image_objects.DedupStoredImage(image=INSTANCE, size=9)])
        self.api.fill_disk({}, HOST, self.fill_request(), store)
        seen = self.disks.fillings.fill.call_args.kwargs['store']
        self.assertEqual(('secret', INSTANCE), (seen.token,
                                                seen.images[0].image))
        sample = image_objects.DedupDiskSample(digests=['ab' * 32],
                                               offsets=[32768])
        self.disks.watchings.sample.return_value = sample
        self.disks.try_images.return_value = (
            image_objects.DedupTryImagesReply(tried=1, found=1, rate=5e6))
        sample = self.api.disk_sample({}, HOST, MIGRATION, 'vda')
        self.disks.watchings.sample.assert_called_once_with(MIGRATION,
                                                            'vda')
        reply = self.api.try_images(
            {}, HOST, image_objects.DedupTryImagesRequest(
                store=store, sample=sample, size=1 << 20))
        self.assertEqual((1, 5e6), (reply.found, reply.rate))
        seen, = self.disks.try_images.call_args.args
        self.assertEqual([32768], seen.sample.offsets)

    def test_sample_of_an_unknown_disk(self):
        self.disks.watchings.sample.side_effect = agent_errors.WatchRefused(
            target='vda', instance=INSTANCE, reason='it is not watched')
        self.assertRaises(errors.AgentRefused, self.api.disk_sample, {},
                          HOST, MIGRATION, 'vda')

    def test_fill_is_refused(self):
        self.disks.fillings.fill.side_effect = agent_errors.FillRefused(
            target='vda', instance=INSTANCE, reason='too many')
        error = self.assertRaises(errors.AgentRefused, self.api.fill_disk,
                                  {}, HOST, self.fill_request())
        self.assertEqual('FillRefused', error.kind)

    def test_public_images(self):
        self.assertTrue(self.api.set_public_images({}, HOST, [MIGRATION]))
        self.disks.owners.set_public.assert_called_once_with([MIGRATION])

    def test_older_agents(self):
        capped = api.AgentAPI(self.bus, 20.0, '1.0')
        self.assertRaises(errors.AgentUnavailable, capped.filling, {},
                          HOST, MIGRATION, 'vda')

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
                             {'info': {'record-pages': 5, 'refused': [
                                 {'device': 'vda', 'reason': 'no'}]}})
        with self.assertLogs('nova_dedup_migrate.agent.endpoint') as logged:
            reply = self.api.incoming({}, HOST, INSTANCE, MIGRATION)
        self.assertIn('disk vda cannot be read', logged.output[0])
        self.assertTrue(reply.known)
        self.assertEqual(5, reply.record_pages)

    def test_no_event(self):
        reply = self.api.incoming({}, HOST, INSTANCE, MIGRATION, wait=0.0)
        self.assertFalse(reply.known)
        self.assertIn('has not sent', reply.reason)

    def test_migrations_to_the_same_host(self):
        other = INSTANCE.replace('0a', '0b')
        self.assertEqual(0, self.ask(self.disk).incoming_migrations)
        self.events.announce(other, MIGRATION)
        self.assertEqual(1, self.ask(self.disk).incoming_migrations)
        self.guests.guest_state_at_once.assert_called_once_with(other)

    def test_survey(self):
        self.surveys.reply.return_value = survey_objects.DedupSurveyReply(
            known=False, reason='no such guest', link_rate=5.0)
        reply = self.api.survey({}, HOST, survey_objects.DedupSurveyRequest(
            instance_uuid=INSTANCE, destination='compute3', max_age=9.0))
        self.assertEqual((False, 5.0), (reply.known, reply.link_rate))
        _, request = self.surveys.reply.call_args.args
        self.assertEqual((INSTANCE, 'compute3', 9.0), (
            request.instance_uuid, request.destination, request.max_age))

    def test_guest_state(self):
        for state in objects.GUEST_STATES:
            self.guests.guest.return_value = local.Presence(state, 3, 'words')
            reply = self.api.guest({}, HOST, INSTANCE)
            self.assertEqual((state, INSTANCE, 3, 'words'), (
                reply.state, reply.uuid, reply.domain_id, reply.reason))
        self.guests.guest.assert_called_with(INSTANCE)

    def test_libvirt_does_not_answer(self):
        error = hypervisor_errors.HypervisorUnavailable(
            uri='qemu:///system', reason='gone')
        self.guests.guest.side_effect = error
        self.remains.forget.side_effect = error
        for method, *arguments in (
                (self.api.guest_state, INSTANCE),
                (self.api.forget_guest, INSTANCE, MIGRATION)):
            error = self.assertRaises(errors.AgentUnavailable, method, {},
                                      HOST, *arguments)
            self.assertIn('gone', error.reason)

    def test_forget_guest(self):
        for known in (True, False):
            self.remains.forget.return_value = known
            self.assertIs(known, self.api.forget_guest({}, HOST, INSTANCE,
                                                       MIGRATION))
        self.remains.forget.assert_called_with(INSTANCE, MIGRATION)

    def test_forget_guest_is_refused(self):
        self.remains.forget.side_effect = agent_errors.ForgetRefused(
            instance_uuid=INSTANCE, reason='it is running (booted)')
        error = self.assertRaises(errors.AgentRefused, self.api.forget_guest,
                                  {}, HOST, INSTANCE, MIGRATION)
        self.assertIn('it is running', error.reason)

    def test_link(self):
        rates = link_rates.LinkRates(
            self.api, 'compute1', Loopback(range(1, 65536)), 0.1, 1 << 20,
            60, lambda: False)
        self.assertGreater(rates.rate({}, HOST, 20.0).rate, 1e6)

    def test_link_is_busy(self):
        with self.receiver._busy, mock.patch.object(link, 'PATIENCE', 0.01):
            error = self.assertRaises(
                errors.AgentUnavailable, self.api.link_probe, {}, HOST,
                objects.DedupLinkRequest(source='x', seconds=1.0, bytes=1))
        self.assertIn('another measurement', error.reason)
        self.assertIsInstance(error, errors.AgentRefused)
