# SPDX-License-Identifier: Apache-2.0
"""The report of a host: its options, and the guests that run."""

import time
import types
from unittest import mock

import libvirt

from nova_dedup_migrate.agent import emulator
from nova_dedup_migrate.agent import guest_samples
from nova_dedup_migrate.agent import host_report
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import sampling
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.hypervisor import survey
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.tests import base

UUIDS = ['%08d-0a1b-0a1b-0a1b-0a1b2c3d4e5f' % number for number in range(3)]


def configuration(enabled=True, **nova):
    return types.SimpleNamespace(
        host='compute1', max_concurrent_live_migrations=2,
        libvirt=types.SimpleNamespace(**{
            'live_migration_downtime': 500,
            'live_migration_downtime_steps': 10,
            'live_migration_downtime_delay': 75,
            'live_migration_bandwidth': 0,
            'live_migration_permit_post_copy': False,
            'live_migration_permit_auto_converge': True,
            'live_migration_completion_timeout': 800,
            'live_migration_timeout_action': 'abort', **nova}),
        dedup_migrate=types.SimpleNamespace(
            enabled=enabled, strategy='auto', adapt_downtime_limit=True,
            max_extra_downtime=50, min_gain=0.05))


class HostReportTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.found = emulator.Emulator(True, '10.0.3')
        self.domains = []
        self.samples = {}
        self.guests = mock.Mock()
        self.list = self.guests.host.connection.listAllDomains
        self.list.side_effect = lambda flags: self.domains

    def domain(self, number, memory_kib=1024):
        domain = mock.Mock()
        domain.UUIDString.return_value = UUIDS[number % len(UUIDS)]
        domain.info.return_value = [1, memory_kib, memory_kib, 1, 0]
        return domain

    def make(self, conf=None, release='1.2', waiting=0):
        return host_report.HostReports(
            conf or configuration(), release, self.guests,
            mock.Mock(**{'describe.return_value': self.found}),
            mock.Mock(**{'last.side_effect': self.samples.get}),
            mock.Mock(**{'best.return_value': 1e9}), list).make(waiting)

    def test_host(self):
        found = self.make(waiting=3)
        self.assertEqual(
            ('compute1', '1.2', True, '10.0.3', '', 2, 1e9, 3, []),
            (found.host, found.release, found.patched, found.qemu_version,
             found.reason, found.max_outbound, found.link_rate,
             found.waiting_reports, found.replicas))

    def test_why_it_does_not_take_part(self):
        found = self.make(configuration(enabled=False))
        self.assertFalse(found.patched)
        self.assertIn('enabled is off', found.reason)
        self.found = emulator.Emulator(False, '9.0', 'stock QEMU')
        found = self.make()
        self.assertEqual((False, 'stock QEMU'),
                         (found.patched, found.reason))

    def test_long_release(self):
        """The object refuses what is longer."""
        self.assertEqual('x' * 64, self.make(release='x' * 99).release)

    def test_options_of_nova(self):
        options = self.make().options
        self.assertEqual(
            ('auto', 500.0, 10, 75.0, True, 50.0, 0.05, None, False, True,
             800.0, False),
            (options.strategy, options.downtime_ms, options.downtime_steps,
             options.downtime_delay, options.adapt_downtime_limit,
             options.max_extra_downtime_ms, options.min_gain,
             options.bandwidth, options.post_copy, options.auto_converge,
             options.timeout_per_gb, options.force_complete))
        options = self.make(configuration(
            live_migration_bandwidth=100, live_migration_permit_post_copy=True,
            live_migration_timeout_action='force_complete')).options
        self.assertEqual((100 * 1048576.0, True, True), (
            options.bandwidth, options.post_copy, options.force_complete))

    def test_guest_without_a_sample(self):
        self.domains = [self.domain(0)]
        guest, = self.make().guests
        self.assertEqual((UUIDS[0], 1 << 20, False),
                         (guest.uuid, guest.memory, guest.tracked))

    def test_guest_with_a_sample(self):
        self.domains = [self.domain(0)]
        self.samples[UUIDS[0]] = guest_samples.Sample(
            time.monotonic() - 60, survey.Survey(
                dirty_rate=5.0, disk_write_rate=7.0,
                in_use=mock.create_autospec(
                    sampling.InUse, instance=True, bytes=9, error=2.0),
                hints=mock.create_autospec(
                    statistics.HintStatistics, instance=True, pages=4,
                    map_pages=3)))
        guest, = self.make().guests
        self.assertEqual(
            (True, 5.0, 7.0, 9.0, 2.0, 4, 3),
            (guest.tracked, guest.dirty_rate, guest.disk_write_rate,
             guest.in_use, guest.in_use_error, guest.hint_pages,
             guest.map_pages))
        self.assertGreaterEqual(guest.age, 60)

    def test_sample_that_found_nothing(self):
        self.domains = [self.domain(0)]
        self.samples[UUIDS[0]] = guest_samples.Sample(
            time.monotonic(), survey.Survey())
        guest, = self.make().guests
        self.assertEqual(
            (True, None, None, None, 0, 0),
            (guest.tracked, guest.dirty_rate, guest.in_use,
             guest.in_use_error, guest.hint_pages, guest.map_pages))

    def test_guest_that_has_ended(self):
        self.domains = [self.domain(0), self.domain(1), self.domain(2)]
        self.domains[1].info.side_effect = libvirt.libvirtError('gone')
        self.assertEqual([UUIDS[0], UUIDS[2]],
                         [guest.uuid for guest in self.make().guests])

    def test_no_more_guests_than_the_object_takes(self):
        self.domains = [self.domain(0)] * (objects.MAX_GUESTS + 1)
        self.assertEqual(objects.MAX_GUESTS, len(self.make().guests))

    def test_libvirt_does_not_answer(self):
        self.list.side_effect = libvirt.libvirtError('no')
        self.assertRaises(errors.HypervisorError, self.make)
