# SPDX-License-Identifier: Apache-2.0
import contextlib
from unittest import mock

import libvirt
from nova import objects
from nova.compute import vm_states
from nova.virt.libvirt import config as libvirt_config
from nova.virt.libvirt import driver as libvirt_driver
from nova.virt.libvirt import host as libvirt_host
from oslo_config import fixture as config_fixture

from nova_dedup_migrate.agent.identity import challenge
from nova_dedup_migrate.compute import disks
from nova_dedup_migrate.compute import gathering
from nova_dedup_migrate.conf import dedup_migrate as options
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import libvirt as hypervisor
from nova_dedup_migrate.hypervisor import sampling
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects as rpc_objects
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import test_disks
from nova_dedup_migrate.tests.unit.tasks import fakes

VOLUME = '7ba3cb1f-b4f3-4af3-b3b3-4f3f4f3f4f3f'
TARGETS = ('vda', 'vdb', 'vdc', 'sda')


def reply(patched=True, copies=('shared', 'shared', 'none', 'none'),
          **fields):
    return rpc_objects.DedupFactsReply(
        host='there', patched=patched, qemu_version='10.0.13', disks=[
            rpc_objects.DedupDiskAnswer(
                target=target, copy=copy, reason='so it is', size=1 << 30,
                storage_rate=1e8)
            for target, copy in zip(TARGETS, copies, strict=True)],
        **fields)


class GathererTest(base.TestCase):

    def setUp(self):
        super().setUp()
        options.register_opts(gathering.CONF)
        self.conf = self.useFixture(config_fixture.Config(gathering.CONF))
        self.driver = mock.create_autospec(libvirt_driver.LibvirtDriver,
                                           instance=True)
        self.driver._host = mock.create_autospec(libvirt_host.Host,
                                                 instance=True)
        self.driver._get_migration_flags.return_value = 0
        self.driver._is_post_copy_enabled.side_effect = (
            lambda flags: bool(flags & libvirt.VIR_MIGRATE_POSTCOPY))
        self.driver._live_migration_data_gb.return_value = 2
        self.driver._live_migration_copy_disk_paths.return_value = (
            ['/var/lib/nova/instances/x/disk'], ['vda'])
        self.agents = mock.create_autospec(api.AgentAPI, instance=True)
        self.agents.facts.return_value = reply()
        self.guest = mock.create_autospec(hypervisor.LibvirtGuest,
                                          instance=True)
        domain = self.guest.domain.return_value = mock.create_autospec(
            libvirt.virDomain, instance=True)
        domain.XMLDesc.return_value = test_disks.XML
        domain.info.return_value = [1, 1 << 20, 1 << 20, 1, 0]
        domain.memoryStats.return_value = {'rss': 1 << 18}
        self.guest.qmp.return_value = {
            'qemu': {'major': 10, 'minor': 0, 'micro': 13}, 'package': ''}
        self.guest.is_patched.return_value = True
        self.guest.dirty_rate.return_value = 5 << 20
        self.guest.memory_in_use.return_value = sampling.InUse(
            9e8, 1e7, 1000)
        self.guest.disk_bytes_written.side_effect = [1 << 20, 1 << 20]
        self.guest.dedup_statistics.return_value = statistics.DedupStatistics(
            hints=statistics.HintStatistics(pages=100, map_pages=40))
        self.instance = objects.Instance(
            uuid='22222222-0000-4000-8000-000000000002',
            vm_state=vm_states.ACTIVE)
        self.data = objects.LibvirtLiveMigrateData(
            block_migration=False, bdms=[])
        self.record = fakes.record()
        self.link_rate = mock.Mock(spec=[], return_value=1.25e7)
        self.challenged = None
        patch = mock.patch.object(challenge, 'challenge', autospec=True,
                                  side_effect=self.challenge)
        patch.start()
        self.addCleanup(patch.stop)

    @contextlib.contextmanager
    def challenge(self, disks, site=None, timeout=10.0):
        self.challenged = disks
        yield challenge.Challenge(
            [rpc_objects.DedupDiskQuery(target=disk.target, chain=[])
             for disk in disks], 'ab' * 32)

    def gather(self):
        return gathering.Gatherer(
            self.driver, self.agents, self.guest, self.instance, self.data,
            self.record, self.link_rate).gather('context')

    def test_ends(self):
        found = self.gather()
        self.assertEqual(facts.End('here', True, '10.0.13'), found.source)
        self.assertEqual(facts.End('there', True, '10.0.13'),
                         found.destination)
        context, host, request = self.agents.facts.call_args.args
        self.assertEqual(
            ('context', 'there', self.instance.uuid,
             self.record.migration_uuid, '/usr/bin/qemu-system-x86_64'),
            (context, host, request.instance_uuid, request.migration_uuid,
             request.emulator))

    def test_memory(self):
        self.assertEqual(facts.Guest(
            memory=1 << 30, resident=1 << 28, hint_pages=100,
            dirty_rate=5.5 * (1 << 20), map_pages=40, disk_write_rate=0.0,
            in_use=9e8, in_use_error=1e7), self.gather().guest)

    def test_disk_writes(self):
        self.guest.disk_bytes_written.side_effect = [1 << 20, 9 << 20]
        self.assertGreater(self.gather().guest.disk_write_rate, 1e6)

    def test_memory_that_cannot_be_sampled(self):
        self.guest.memory_in_use.side_effect = hypervisor_errors.WaitTimeout(
            what='x', seconds=1)
        found = self.gather().guest
        self.assertEqual((None, 1 << 28), (found.in_use, found.resident))
        self.assertIn('sampling memory', self.record.warnings[0])

    def test_memory_in_huge_pages(self):
        xml = test_disks.XML.replace(
            '<devices>', '<memoryBacking><hugepages/></memoryBacking>'
            '<devices>', 1)
        self.guest.domain().XMLDesc.return_value = xml
        self.assertEqual(1 << 30, self.gather().guest.resident)

    def test_paused(self):
        self.instance.vm_state = vm_states.PAUSED
        self.driver._get_migration_flags.return_value = (
            libvirt.VIR_MIGRATE_POSTCOPY)
        found = self.gather()
        self.assertEqual(0, found.guest.dirty_rate)
        self.assertEqual(0, found.guest.disk_write_rate)
        self.assertEqual(9e8, found.guest.in_use)
        self.guest.dirty_rate.assert_not_called()
        self.assertFalse(found.options.postcopy)

    def test_dirty_rate_is_not_to_be_had(self):
        self.guest.dirty_rate.side_effect = hypervisor_errors.WaitTimeout(
            what='x', seconds=1)
        self.assertEqual(0, self.gather().guest.dirty_rate)
        self.assertEqual(1, len(self.record.warnings))

    def test_shared(self):
        found = {disk.target: disk for disk in self.gather().disks}
        self.assertEqual(
            {'vda': 'shared', 'vdb': 'shared', 'vdc': 'none', 'sda': 'none'},
            {target: disk.copy for target, disk in found.items()})
        self.assertEqual(facts.Disk(
            'virtio-disk0', 'vda', 'shared', size=1 << 30,
            storage_rate=1e8), found['vda'])
        self.assertEqual('so it is', found['vdc'].reason)

    def test_mirrored(self):
        self.data.block_migration = True
        self.agents.facts.return_value = reply(
            copies=('own', 'shared', 'own', 'none'))
        with mock.patch.object(disks.DomainDisk, 'allocated', autospec=True,
                               return_value=7):
            found = self.gather()
        self.assertEqual(
            [('own', 7), ('shared', 0), ('none', 0), ('none', 0)],
            [(disk.copy, disk.to_copy) for disk in found.disks])
        self.assertTrue(found.options.block_migration)

    def test_mirrored_onto_itself(self):
        # whatever that may be, nothing is to be read from it
        self.data.block_migration = True
        self.assertEqual('none', self.gather().disks[0].copy)

    def test_volume_is_elsewhere(self):
        config = libvirt_config.LibvirtConfigGuestDisk()
        config.source_path = '/dev/sdz'
        self.driver._get_volume_config.return_value = config
        self.data.bdms = [objects.LibvirtLiveMigrateBDMInfo(
            serial=VOLUME, bus='virtio', dev='vdb', type='disk',
            connection_info_json='{}')]
        self.gather()
        self.assertEqual(
            [None, '/dev/sdz', None, None],
            [disk.chain[0].destination for disk in self.challenged])

    def test_agent_is_gone(self):
        self.agents.facts.side_effect = errors.AgentUnavailable(
            'there', 'no answer within 10 s')
        found = self.gather()
        self.assertFalse(found.destination.patched)
        self.assertIn('no answer', found.destination.reason)
        self.assertEqual({'none'}, {disk.copy for disk in found.disks})

    def test_agent_hangs(self):
        """Whoever does not say hello is asked nothing else."""
        self.agents.hello.side_effect = errors.AgentUnavailable(
            'there', 'no answer within 2 s')
        found = self.gather()
        self.agents.facts.assert_not_called()
        self.link_rate.assert_called_once_with('context', 'there', False)
        self.assertIn('within 2 s', found.destination.reason)
        self.assertFalse(found.destination.patched)

    def test_destination_is_stock(self):
        self.agents.facts.return_value = reply(patched=False,
                                               reason='stock QEMU')
        self.assertEqual(facts.End('there', False, '10.0.13', 'stock QEMU'),
                         self.gather().destination)

    def check_not_asked(self):
        found = self.gather()
        self.agents.facts.assert_not_called()
        self.assertFalse(found.destination.patched)
        # without it nothing could be predicted of an ordinary migration
        self.link_rate.assert_called_once_with('context', 'there', True)

    def test_source_is_stock(self):
        self.guest.is_patched.return_value = False
        self.guest.dedup_statistics.side_effect = (
            hypervisor_errors.DedupNotSupported(name='x'))
        self.check_not_asked()

    def test_off(self):
        self.record.strategy = 'off'
        self.check_not_asked()

    def test_domain_vanishes(self):
        self.guest.qmp.side_effect = hypervisor_errors.GuestNotRunning(
            name='x')
        self.assertRaises(hypervisor_errors.GuestNotRunning, self.gather)

    def test_link(self):
        self.conf.config(group='libvirt', live_migration_bandwidth=10)
        self.conf.config(group='dedup_migrate', link_bandwidth=12.5)
        self.assertEqual(
            facts.Link(configured=10.0 * (1 << 20), measured=1.25e7,
                       host_limit=1.25e7), self.gather().link)

    def test_link_without_limits(self):
        self.link_rate.return_value = None
        self.assertEqual(facts.Link(), self.gather().link)

    def test_options(self):
        self.driver._get_migration_flags.return_value = (
            libvirt.VIR_MIGRATE_POSTCOPY | libvirt.VIR_MIGRATE_AUTO_CONVERGE
            | libvirt.VIR_MIGRATE_TLS)
        self.conf.config(group='libvirt', live_migration_downtime=700,
                         live_migration_downtime_steps=3,
                         live_migration_downtime_delay=20,
                         live_migration_completion_timeout=30,
                         live_migration_timeout_action='force_complete')
        self.assertEqual(facts.Options(
            downtime_ms=700, downtime_steps=(
                (0, 233), (40, 388), (80, 544), (120, 700)),
            switch_over=0.15, postcopy=True,
            auto_converge=True, tls=True, timeout=60, force_complete=True,
            strategy='auto', strategy_source='nova.conf', min_gain=0.05),
            self.gather().options)

    def test_parallel(self):
        option = 'live_migration_parallel_connections'
        if option not in gathering.CONF.libvirt:
            self.skipTest('this Nova migrates over one connection')
        self.conf.config(group='libvirt', **{option: 4})
        self.driver._get_migration_flags.return_value = (
            libvirt.VIR_MIGRATE_PARALLEL)
        self.assertEqual(4, self.gather().options.multifd_channels)
