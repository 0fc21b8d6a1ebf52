# SPDX-License-Identifier: Apache-2.0
import contextlib
import dataclasses
from unittest import mock

import libvirt
from nova import objects
from nova.compute import vm_states
from nova.virt.libvirt import config as libvirt_config
from nova.virt.libvirt import driver as libvirt_driver
from nova.virt.libvirt import host as libvirt_host
from oslo_config import fixture as config_fixture

from nova_dedup_migrate.compute import facts_collector
from nova_dedup_migrate.conf import dedup_migrate as options
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import libvirt as hypervisor
from nova_dedup_migrate.hypervisor import sampling
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.identity import challenge
from nova_dedup_migrate.identity import domain_disks as disks
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects as rpc_objects
from nova_dedup_migrate.rpc import survey_objects
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.identity import test_domain_disks
from nova_dedup_migrate.tests.unit.tasks import fakes

VOLUME = '7ba3cb1f-b4f3-4af3-b3b3-4f3f4f3f4f3f'
TARGETS = ('vda', 'vdb', 'vdc', 'sda')


def reply(patched=True, copies=('shared', 'shared', 'none', 'none'),
          **fields):
    return rpc_objects.DedupFactsReply(
        host='there', patched=patched, qemu_version='10.0.13', disks=[
            rpc_objects.DedupDiskAnswer(
                target=target, copy=copy, reason='so it is', size=1 << 30,
                storage_rate=1e8, scattered_rate=5e6)
            for target, copy in zip(TARGETS, copies, strict=True)],
        **fields)


def sample(known=True, **fields):
    given = dict(
        age=20.0, dirty_rate=6e6, disk_write_rate=3e6, in_use=8e8,
        in_use_error=2e7, hint_pages=4000, map_pages=10, link_rate=2e7,
        link_age=60.0,
        hints=[survey_objects.DedupDiskHints(
            device='virtio-disk0', pages=1000, sampled=200, valid=150),
            survey_objects.DedupDiskHints(
            device='ua-7ba3cb1f', pages=3000, sampled=100, valid=100)])
    given.update(fields)
    return survey_objects.DedupSurveyReply(
        known=known, reason='' if known else 'no sample yet', **given)


class FactsCollectorTest(base.TestCase):

    def setUp(self):
        super().setUp()
        options.register_opts(facts_collector.CONF)
        self.conf = self.useFixture(config_fixture.Config(
            facts_collector.CONF))
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
        self.agents.survey.return_value = sample()
        self.guest = mock.create_autospec(hypervisor.LibvirtGuest,
                                          instance=True)
        domain = self.guest.domain.return_value = mock.create_autospec(
            libvirt.virDomain, instance=True)
        domain.XMLDesc.return_value = test_domain_disks.XML
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
        self.guest.sample_hints.return_value = (
            statistics.DiskHints('virtio-disk0', 60, 40, 30),
            statistics.DiskHints('ua-7ba3cb1f', 40, 3, 0))
        self.instance = objects.Instance(
            uuid='22222222-0000-4000-8000-000000000002',
            vm_state=vm_states.ACTIVE, system_metadata={},
            flavor=objects.Flavor(extra_specs={}))
        compression = self.guest.sample_compression
        compression.return_value = statistics.CompressionSample(
            pages=4096, zero_pages=96, hinted_pages=2000,
            sampled_pages=2000, compressed_bytes=2000 * 1024)
        self.data = objects.LibvirtLiveMigrateData(
            block_migration=False, bdms=[])
        self.operation = fakes.operation()
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

    def collect(self):
        return facts_collector.FactsCollector(
            self.driver, self.agents, self.guest, self.instance, self.data,
            self.operation, self.link_rate).collect('context')

    def without_agent(self):
        """The agent of the source does not answer."""
        def hello(context, host):
            if host == 'here':
                raise errors.AgentUnavailable(host, 'no answer within 2 s')
        self.agents.hello.side_effect = hello

    def test_compressed_share(self):
        self.assertEqual(0.25, self.collect().guest.compressed_share)

    def test_too_few_pages_to_compress(self):
        compression = self.guest.sample_compression
        compression.return_value = statistics.CompressionSample(
            pages=4096, zero_pages=4033, sampled_pages=63,
            compressed_bytes=63)
        self.assertIsNone(self.collect().guest.compressed_share)

    def test_qemu_cannot_sample(self):
        compression = self.guest.sample_compression
        compression.side_effect = (
            hypervisor_errors.DedupNotSupported(name='x'))
        self.assertIsNone(self.collect().guest.compressed_share)
        self.assertEqual([], self.operation.warnings)
        compression.side_effect = hypervisor_errors.WaitTimeout(
            what='sampling', seconds=1)
        self.assertIsNone(self.collect().guest.compressed_share)
        self.assertEqual(1, len(self.operation.warnings))

    def test_compression(self):
        found = self.collect().options
        self.assertEqual(('auto', 'nova.conf'), (
            found.compression, found.compression_source))
        self.conf.config(group='dedup_migrate', compression='off')
        self.instance.system_metadata = {
            'image_dedup_migrate:compression': 'zstd'}
        found = self.collect().options
        self.assertEqual(('zstd', 'image'), (
            found.compression, found.compression_source))

    def test_processors_of_the_source(self):
        with mock.patch('os.getloadavg', autospec=True,
                        return_value=(1e6, 0.0, 0.0)):
            self.assertEqual(0.0, self.collect().source.processors)

    def test_processors_of_the_destination(self):
        self.assertIsNone(self.collect().destination.processors)
        self.agents.facts.return_value.idle_processors = 1.5
        self.assertEqual(1.5, self.collect().destination.processors)

    def test_ends(self):
        found = self.collect()
        self.assertEqual(
            facts.End('here', True, '10.0.13'),
            dataclasses.replace(found.source, processors=None))
        self.assertEqual(facts.End('there', True, '10.0.13'),
                         found.destination)
        context, host, request = self.agents.facts.call_args.args
        self.assertEqual(
            ('context', 'there', self.instance.uuid,
             self.operation.migration_uuid, '/usr/bin/qemu-system-x86_64'),
            (context, host, request.instance_uuid, request.migration_uuid,
             request.emulator))

    def test_agent_of_the_source(self):
        """It has all figures, so that nothing is measured now."""
        found = self.collect()
        self.assertEqual(facts.Guest(
            memory=1 << 30, resident=1 << 28, hint_pages=4000,
            dirty_rate=6e6, map_pages=10, disk_write_rate=3e6, in_use=8e8,
            in_use_error=2e7, valid_share=0.9375, compressed_share=0.25),
            found.guest)
        self.assertEqual(2e7, found.link.measured)
        context, host, request = self.agents.survey.call_args.args
        self.assertEqual(
            ('context', 'here', self.instance.uuid, 'there', 300.0),
            (context, host, request.instance_uuid, request.destination,
             request.max_age))
        for method in (self.guest.dirty_rate, self.guest.memory_in_use,
                       self.guest.sample_hints, self.link_rate):
            method.assert_not_called()

    def test_figures_that_the_agent_could_not_take(self):
        self.agents.survey.return_value = sample(
            dirty_rate=None, disk_write_rate=None, in_use=None,
            in_use_error=None, hint_pages=0, hints=[], link_rate=None)
        found = self.collect()
        self.assertEqual(facts.Guest(
            memory=1 << 30, resident=1 << 28, hint_pages=0, dirty_rate=0.0,
            map_pages=0, compressed_share=0.25), found.guest)
        self.assertEqual({0}, {disk.hint_pages for disk in found.disks})
        self.link_rate.assert_called_once_with('there')
        self.assertEqual(1.25e7, found.link.measured)

    def test_agent_has_no_sample_of_the_guest(self):
        """The rate of the link counts all the same."""
        self.agents.survey.return_value = sample(known=False)
        found = self.collect()
        self.assertEqual((100, 9e8), (found.guest.hint_pages,
                                      found.guest.in_use))
        self.assertEqual(2e7, found.link.measured)

    def test_an_old_sample_of_a_guest_that_wrote_a_lot(self):
        """It may have been starting: what it does now decides."""
        self.agents.survey.side_effect = [
            sample(dirty_rate=1.1e7), sample(age=0.5, dirty_rate=1e5)]
        self.assertEqual(1e5, self.collect().guest.dirty_rate)
        self.assertEqual([300.0, 5.0], [
            call.args[2].max_age
            for call in self.agents.survey.call_args_list])

    def test_a_sample_that_will_do(self):
        for fields in ({'dirty_rate': 1.1e7, 'age': 4.0},
                       {'dirty_rate': 1e7}, {'dirty_rate': None},
                       {'dirty_rate': 1.1e7, 'link_rate': None}):
            self.agents.survey.reset_mock()
            self.agents.survey.return_value = sample(**fields)
            self.collect()
            self.agents.survey.assert_called_once()

    def test_without_the_agent_of_the_source(self):
        self.without_agent()
        found = self.collect()
        self.agents.survey.assert_not_called()
        self.assertEqual(facts.Guest(
            memory=1 << 30, resident=1 << 28, hint_pages=100,
            dirty_rate=5.5 * (1 << 20), map_pages=40, disk_write_rate=0.0,
            in_use=9e8, in_use_error=1e7, valid_share=0.75,
            compressed_share=0.25), found.guest)
        self.assertEqual(1.25e7, found.link.measured)
        self.assertTrue(found.destination.patched)
        self.assertEqual([], self.operation.warnings)

    def test_survey_fails(self):
        self.agents.survey.side_effect = errors.AgentUnavailable(
            'here', 'it has no method survey')
        self.assertEqual(100, self.collect().guest.hint_pages)

    def test_hints_by_disk(self):
        found = {disk.target: disk for disk in self.collect().disks}
        self.assertEqual((1000, 0.75), (found['vda'].hint_pages,
                                        found['vda'].valid_share))
        self.assertEqual((3000, 1.0), (found['vdb'].hint_pages,
                                       found['vdb'].valid_share))
        # It is known that there are none.
        self.assertEqual((0, None), (found['vdc'].hint_pages,
                                     found['vdc'].valid_share))

    def test_a_sample_of_three_pages_says_nothing(self):
        self.without_agent()
        found = {disk.target: disk for disk in self.collect().disks}
        self.assertEqual((60, 0.75), (found['vda'].hint_pages,
                                      found['vda'].valid_share))
        self.assertEqual((40, None), (found['vdb'].hint_pages,
                                      found['vdb'].valid_share))

    def test_agent_has_no_hints_by_disk(self):
        self.agents.survey.return_value = sample(hints=[])
        found = self.collect()
        self.assertEqual({None}, {disk.hint_pages for disk in found.disks})
        self.assertEqual(4000, found.guest.hint_pages)

    def test_qemu_does_not_count_by_disk(self):
        self.without_agent()
        self.guest.sample_hints.side_effect = (
            hypervisor_errors.DedupNotSupported(name='x'))
        found = self.collect()
        self.assertEqual({None}, {disk.hint_pages for disk in found.disks})
        self.assertEqual((100, None), (found.guest.hint_pages,
                                       found.guest.valid_share))

    def test_other_migrations_to_the_host(self):
        self.assertEqual(0, self.collect().link.sharers)
        self.agents.facts.return_value = reply(incoming_migrations=3)
        self.assertEqual(3, self.collect().link.sharers)

    def test_disk_writes(self):
        self.without_agent()
        self.guest.disk_bytes_written.side_effect = [1 << 20, 9 << 20]
        self.assertGreater(self.collect().guest.disk_write_rate, 1e6)

    def test_memory_that_cannot_be_sampled(self):
        self.without_agent()
        self.guest.memory_in_use.side_effect = hypervisor_errors.WaitTimeout(
            what='x', seconds=1)
        found = self.collect().guest
        self.assertEqual((None, 1 << 28), (found.in_use, found.resident))
        self.assertIn('sampling memory', self.operation.warnings[0])

    def test_memory_in_huge_pages(self):
        xml = test_domain_disks.XML.replace(
            '<devices>', '<memoryBacking><hugepages/></memoryBacking>'
            '<devices>', 1)
        self.guest.domain().XMLDesc.return_value = xml
        self.assertEqual(1 << 30, self.collect().guest.resident)

    def test_paused(self):
        self.instance.vm_state = vm_states.PAUSED
        self.driver._get_migration_flags.return_value = (
            libvirt.VIR_MIGRATE_POSTCOPY)
        for in_use in 8e8, 9e8:
            found = self.collect()
            self.assertEqual(0, found.guest.dirty_rate)
            self.assertEqual(0, found.guest.disk_write_rate)
            self.assertEqual(in_use, found.guest.in_use)
            self.guest.dirty_rate.assert_not_called()
            self.assertFalse(found.options.postcopy)
            self.without_agent()

    def test_dirty_rate_is_not_to_be_had(self):
        self.without_agent()
        self.guest.dirty_rate.side_effect = hypervisor_errors.WaitTimeout(
            what='x', seconds=1)
        self.assertEqual(0, self.collect().guest.dirty_rate)
        self.assertEqual(1, len(self.operation.warnings))

    def test_shared(self):
        found = {disk.target: disk for disk in self.collect().disks}
        self.assertEqual(
            {'vda': 'shared', 'vdb': 'shared', 'vdc': 'none', 'sda': 'none'},
            {target: disk.copy for target, disk in found.items()})
        self.assertEqual(facts.Disk(
            'virtio-disk0', 'vda', 'shared', size=1 << 30, storage_rate=1e8,
            scattered_rate=5e6, hint_pages=1000, valid_share=0.75),
            found['vda'])
        self.assertEqual('so it is', found['vdc'].reason)

    def test_mirrored(self):
        self.data.block_migration = True
        self.agents.facts.return_value = reply(
            copies=('own', 'shared', 'own', 'none'))
        with mock.patch.object(disks.DomainDisk, 'allocated', autospec=True,
                               return_value=7):
            found = self.collect()
        self.assertEqual(
            [('own', 7), ('shared', 0), ('none', 0), ('none', 0)],
            [(disk.copy, disk.to_copy) for disk in found.disks])
        self.assertTrue(found.options.block_migration)

    def test_mirrored_in_part(self):
        """What is proven is not copied, nor what is not allocated."""
        self.data.block_migration = True
        self.driver._live_migration_copy_disk_paths.return_value = (
            [], ['vda', 'vdb', 'vdc'])
        self.agents.facts.return_value = reply(
            copies=('own', 'own', 'none', 'none'))
        self.operation.disks = [
            report.Disk('vda', size=1000, proven=950),
            # watched, and not armed
            report.Disk('vdb', size=1000, sources={'local': 999}),
            report.Disk('vdc', size=1000, proven=100)]
        with mock.patch.object(disks.DomainDisk, 'allocated', autospec=True,
                               return_value=300):
            found = self.collect()
        self.assertEqual(
            [('own', 50), ('own', 300), ('none', 300), ('none', 0)],
            [(disk.copy, disk.to_copy) for disk in found.disks])

    def test_mirrored_onto_itself(self):
        # whatever that may be, nothing is to be read from it
        self.data.block_migration = True
        self.assertEqual('none', self.collect().disks[0].copy)

    def test_volume_is_elsewhere(self):
        config = libvirt_config.LibvirtConfigGuestDisk()
        config.source_path = '/dev/sdz'
        self.driver._get_volume_config.return_value = config
        self.data.bdms = [objects.LibvirtLiveMigrateBDMInfo(
            serial=VOLUME, bus='virtio', dev='vdb', type='disk',
            connection_info_json='{}')]
        self.collect()
        self.assertEqual(
            [None, '/dev/sdz', None, None],
            [disk.chain[0].destination for disk in self.challenged])

    def test_agent_is_gone(self):
        self.agents.facts.side_effect = errors.AgentUnavailable(
            'there', 'no answer within 10 s')
        found = self.collect()
        self.assertFalse(found.destination.patched)
        self.assertIn('no answer', found.destination.reason)
        self.assertEqual({'none'}, {disk.copy for disk in found.disks})

    def test_agent_hangs(self):
        """If it does not answer hello, nothing else is sent to it."""
        def hello(context, host):
            if host == 'there':
                raise errors.AgentUnavailable(host, 'no answer within 2 s')
        self.agents.hello.side_effect = hello
        found = self.collect()
        self.agents.facts.assert_not_called()
        self.assertIn('within 2 s', found.destination.reason)
        self.assertFalse(found.destination.patched)

    def test_no_agent_at_all(self):
        """The link is not measured, but an earlier migration counts."""
        self.agents.hello.side_effect = errors.AgentUnavailable(
            'there', 'no answer within 2 s')
        found = self.collect()
        self.link_rate.assert_called_once_with('there')
        self.assertEqual(1.25e7, found.link.measured)

    def test_destination_is_stock(self):
        self.agents.facts.return_value = reply(patched=False,
                                               reason='stock QEMU')
        self.assertEqual(facts.End('there', False, '10.0.13', 'stock QEMU'),
                         self.collect().destination)

    def test_source_is_stock(self):
        """Nobody calls it then; if so, the plan says why."""
        self.guest.is_patched.return_value = False
        self.assertFalse(self.collect().source.patched)

    def test_domain_vanishes(self):
        self.guest.qmp.side_effect = hypervisor_errors.GuestNotRunning(
            name='x')
        self.assertRaises(hypervisor_errors.GuestNotRunning, self.collect)

    def test_link(self):
        self.conf.config(group='libvirt', live_migration_bandwidth=10)
        self.conf.config(group='dedup_migrate', link_bandwidth=12.5)
        self.assertEqual(
            facts.Link(configured=10.0 * (1 << 20), measured=2e7,
                       host_limit=1.25e7), self.collect().link)

    def test_link_without_limits(self):
        self.without_agent()
        self.link_rate.return_value = None
        self.assertEqual(facts.Link(), self.collect().link)

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
            strategy='auto', strategy_source='nova.conf', min_gain=0.05,
            fetch_share=0.9,
            adapt_downtime_limit=True, max_extra_downtime_ms=50),
            self.collect().options)

    def test_parallel(self):
        option = 'live_migration_parallel_connections'
        if option not in facts_collector.CONF.libvirt:
            self.skipTest('this Nova migrates over one connection')
        self.conf.config(group='libvirt', **{option: 4})
        self.driver._get_migration_flags.return_value = (
            libvirt.VIR_MIGRATE_PARALLEL)
        self.assertEqual(4, self.collect().options.multifd_channels)

    def test_options_of_ours(self):
        self.conf.config(group='dedup_migrate', adapt_downtime_limit=False,
                         max_extra_downtime=120, min_gain=0.2,
                         survey_max_age=7.0)
        found = self.collect().options
        self.assertEqual((False, 120, 0.2), (
            found.adapt_downtime_limit, found.max_extra_downtime_ms,
            found.min_gain))
        self.assertEqual(7.0, self.agents.survey.call_args.args[2].max_age)
