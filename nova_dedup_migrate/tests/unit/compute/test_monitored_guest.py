# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import libvirt
from nova import exception
from nova import objects
from nova.virt.libvirt import guest as libvirt_guest
import oslo_messaging

from nova_dedup_migrate.compute import monitored_guest
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.operations import session as compute_session
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import fakes
from nova_dedup_migrate.tests.unit.compute.fakes import libvirt_error

MIB = 1 << 20


class MonitoredGuestTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.session = mock.create_autospec(compute_session.Session,
                                            instance=True)
        self.saved = []
        self.session.operation = fakes.operation(self.saved)
        self.info = libvirt_guest.JobInfo(
            type=libvirt.VIR_DOMAIN_JOB_UNBOUNDED, memory_total=100 * MIB,
            memory_processed=20 * MIB, memory_remaining=30 * MIB)
        self.guest = mock.create_autospec(libvirt_guest.Guest, instance=True)
        self.guest.get_job_info.return_value = self.info
        self.reopen = mock.Mock(spec=[])
        self.seen = monitored_guest.MonitoredGuest(
            self.guest, self.session, self.reopen)

    def see(self, **source):
        self.session.operation.see(progress.Progress(
            status='active', rounds=1, dedup=statistics.DedupStatistics(
                source=statistics.SourceStatistics(**source))))

    def check(self, processed, remaining):
        info = self.seen.get_job_info()
        self.assertEqual(
            (100 * MIB, processed * MIB, remaining * MIB),
            (info.memory_total, info.memory_processed,
             info.memory_remaining))

    def test_before_the_first_look(self):
        self.check(20, 30)

    def test_stock(self):
        self.session.operation.see(progress.Progress(status='active',
                                                     rounds=1))
        self.check(20, 30)

    def test_fetched_and_outstanding(self):
        self.see(storage_pages=40 * 256, outstanding=10 * 256)
        self.check(60, 40)

    def test_never_more_than_there_is(self):
        self.see(outstanding=90 * 256)
        self.check(20, 100)

    def test_before_libvirt_knows(self):
        self.info.memory_total = 0
        self.see(storage_pages=40 * 256)
        self.assertEqual(20 * MIB, self.seen.get_job_info().memory_processed)

    def test_session_sees_the_job(self):
        self.seen.get_job_info()
        self.session.see_job.assert_called_once_with(self.guest)

    def test_no_job(self):
        self.info.type = libvirt.VIR_DOMAIN_JOB_NONE
        self.seen.get_job_info()
        self.session.see_job.assert_not_called()

    def lose(self, *found):
        self.guest.get_job_info.side_effect = libvirt_error(
            libvirt.VIR_ERR_RPC)
        self.reopen.side_effect = found
        patch = mock.patch.object(monitored_guest, '_INTERVAL_S', 0)
        patch.start()
        self.addCleanup(patch.stop)

    def test_libvirtd_is_started_again(self):
        again = mock.create_autospec(libvirt_guest.Guest, instance=True)
        again.get_job_info.return_value = libvirt_guest.JobInfo(
            type=libvirt.VIR_DOMAIN_JOB_NONE)
        self.lose(exception.HypervisorUnavailable(),
                  libvirt_error(libvirt.VIR_ERR_RPC), again)
        self.assertEqual(libvirt.VIR_DOMAIN_JOB_NONE,
                         self.seen.get_job_info().type)
        self.seen.is_active()
        again.is_active.assert_called_once_with()
        self.assertEqual(3, self.reopen.call_count)

    def test_the_guest_is_gone_when_libvirtd_is_there_again(self):
        self.lose(exception.InstanceNotFound(instance_id='x'))
        self.assertEqual(libvirt.VIR_DOMAIN_JOB_COMPLETED,
                         self.seen.get_job_info().type)

    def test_libvirtd_stays_away(self):
        with mock.patch.object(monitored_guest, 'LIBVIRT_S', 0):
            self.lose()
            self.assertRaises(libvirt.libvirtError, self.seen.get_job_info)

    def test_qemu_has_just_ended(self):
        self.lose(self.guest)
        self.guest.get_job_info.side_effect = [
            libvirt_error(libvirt.VIR_ERR_SYSTEM_ERROR),
            libvirt_guest.JobInfo(type=libvirt.VIR_DOMAIN_JOB_COMPLETED)]
        self.assertEqual(libvirt.VIR_DOMAIN_JOB_COMPLETED,
                         self.seen.get_job_info().type)

    def test_other_errors_pass_in_the_end(self):
        self.lose()
        error = libvirt_error(libvirt.VIR_ERR_INTERNAL_ERROR)
        self.guest.get_job_info.side_effect = error
        with mock.patch.object(monitored_guest, 'QEMU_S', 0):
            self.assertIs(error, self.assertRaises(
                libvirt.libvirtError, self.seen.get_job_info))

    def test_all_else_is_the_guests(self):
        self.seen.abort_job()
        self.guest.abort_job.assert_called_once_with()
        self.seen.migrate_configure_max_downtime(500)
        self.guest.migrate_configure_max_downtime.assert_called_once_with(
            500)

    def test_a_pause_is_in_the_undo_log_first(self):
        self.guest.pause.side_effect = lambda: self.assertEqual(
            ['requested'], self.saved)
        self.seen.pause()
        self.guest.pause.assert_called_once_with()
        self.assertEqual([operations.UNDO_PAUSE],
                         self.session.operation.durable.undo)


class MonitoredRecordTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = mock.create_autospec(objects.Migration, instance=True)
        self.record.uuid = self.record.instance_uuid = fakes.UUID
        self.data = mock.Mock(migration=self.record)

    def test_the_bus_is_away(self):
        self.record.save.side_effect = oslo_messaging.MessagingTimeout('x')
        seen = monitored_guest.MonitoredData(self.data).migration
        seen.status = 'running (post-copy)'
        seen.save()
        self.assertEqual('running (post-copy)', self.record.status)
        self.record.save.assert_called_once_with()

    def test_other_errors_pass(self):
        self.record.save.side_effect = exception.MigrationNotFound(
            migration_id=1)
        self.assertRaises(exception.MigrationNotFound,
                          monitored_guest.MonitoredRecord(self.record).save)

    def test_data_is_novas(self):
        data = objects.LibvirtLiveMigrateData(
            block_migration=True, migration=objects.Migration())
        seen = monitored_guest.MonitoredData(data)
        self.assertTrue(seen.block_migration)
        self.assertIn('block_migration', seen)
        self.assertNotIn('vifs', seen)
