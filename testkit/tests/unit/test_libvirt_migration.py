# SPDX-License-Identifier: Apache-2.0
import threading
import unittest
from unittest import mock

try:
    import libvirt
except ImportError as error:
    raise unittest.SkipTest(str(error)) from error

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.tests import base
from testkit import libvirt as guests
from testkit import libvirt_migration
from testkit import options

ACTIVE = progress.Progress(
    status='active', rounds=1, total_bytes=100, remaining_bytes=50,
    dedup=statistics.DedupStatistics(
        source=statistics.SourceStatistics(record_pages=7)))
JOB = {'memory_iteration': 3, 'memory_total': 200, 'memory_processed': 90,
       'memory_normal': 11, 'memory_constant': 12, 'downtime': 25,
       'setup_time': 2, 'time_elapsed': 900, 'type': 3}


def failure(code):
    error = libvirt.libvirtError('it failed')
    error.err = (code, 0, 'what libvirt said', 0, '', '', '', 0, 0)
    return error


class LibvirtMigrationTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.outcome = threading.Event()
        self.error = None
        self.domain = mock.create_autospec(libvirt.virDomain, instance=True)
        self.domain.migrateToURI3.side_effect = self.migrate
        self.domain.state.return_value = [libvirt.VIR_DOMAIN_RUNNING, 1]
        self.source, self.destination = (
            mock.create_autospec(guests.LibvirtGuest, instance=True)
            for _ in range(2))
        for guest, name in ((self.source, 'source'),
                            (self.destination, 'destination')):
            guest.name = name
            guest.unsafe = False
            guest.events = events.EventLog()
            guest.host = mock.create_autospec(guests.LibvirtHost,
                                              instance=True)
            guest.host.peer_uri = 'qemu+tcp://%s/system' % name
            guest.is_alive.return_value = False
        self.source.host.connection.getLibVersion.return_value = 9000000
        self.source.domain.return_value = self.domain
        self.source.is_patched.return_value = True
        self.source.dedup_statistics.return_value = (
            statistics.DedupStatistics(
                source=statistics.SourceStatistics(state='armed')))
        self.source.progress.return_value = ACTIVE
        self.destination.migration_parameters.return_value = {}
        self.destination.job_statistics.return_value = JOB
        self.addCleanup(self.outcome.set)

    def migrate(self, uri, parameters, flags):
        if self.error is None:
            self.source.events.add('MIGRATION', {'status': 'setup'})
        self.outcome.wait(30)
        if self.error is not None:
            raise self.error

    def begin(self, **given):
        return libvirt_migration.begin(self.source, self.destination,
                                       options.MigrationOptions(**given))

    def test_figures_of_the_end(self):
        migration = self.begin()
        self.assertEqual('active', migration.progress().status)
        self.outcome.set()
        final = migration.wait(10)
        self.assertEqual('completed', final.status)
        self.assertEqual((3, 200, 90, 0), (
            final.rounds, final.total_bytes, final.transferred_bytes,
            final.remaining_bytes))
        self.assertEqual((11, 12), (final.pages.peer, final.pages.zero))
        self.assertEqual((25, 2, 900), (
            final.downtime_ms, final.setup_time_ms, final.total_time_ms))
        self.assertEqual(7, final.dedup.source.record_pages)

    def test_end_without_figures(self):
        self.outcome.set()
        for figures in ([errors.GuestNotRunning(name='destination')],
                        [{'memory_normal': -1}], [{'downtime': 'long'}]):
            self.destination.job_statistics.side_effect = figures
            migration = self.begin()
            final = migration.wait(10)
            self.assertEqual('completed', final.status)
            self.assertIs(final, migration.progress())

    def test_qemu_is_not_asked_for_the_outcome(self):
        migration = self.begin()
        for said, expected in (('completed', 'device'),
                               ('cancelled', 'cancelling'),
                               ('failed', 'cancelling'),
                               ('pre-switchover', 'device')):
            self.source.progress.return_value = progress.Progress(
                status=said)
            self.assertEqual(expected, migration.progress().status)
            self.assertFalse(migration.progress().finished)

    def test_failure(self):
        migration = self.begin()
        self.error = failure(libvirt.VIR_ERR_NO_DOMAIN)
        self.outcome.set()
        error = self.assertRaises(errors.MigrationFailed, migration.wait, 10)
        self.assertEqual('failed', error.status)
        self.assertIn('what libvirt said', error.reason)

    def test_libvirtd_is_lost_before_the_call_ends(self):
        migration = self.begin()

        def lost(**given):
            self.error = failure(libvirt.VIR_ERR_INTERNAL_ERROR)
            threading.Timer(0.05, self.outcome.set).start()
            raise errors.HypervisorUnavailable(uri='here', reason='gone')
        self.source.progress.side_effect = lost
        error = self.assertRaises(errors.MigrationFailed, migration.wait, 10)
        self.assertEqual('failed', error.status)

    def test_cancel(self):
        migration = self.begin()

        def abort():
            self.error = failure(libvirt.VIR_ERR_OPERATION_ABORTED)
            self.outcome.set()
        self.domain.abortJob.side_effect = abort
        self.assertEqual('cancelled', migration.cancel().status)

    def test_cancel_too_late(self):
        migration = self.begin()

        def abort():
            self.outcome.set()
            raise failure(libvirt.VIR_ERR_OPERATION_INVALID)
        self.domain.abortJob.side_effect = abort
        self.assertEqual('completed', migration.cancel().status)

    def test_refused_before_it_began(self):
        self.error = failure(libvirt.VIR_ERR_OPERATION_FAILED)
        self.outcome.set()
        error = self.assertRaises(errors.HypervisorRefused, self.begin)
        self.assertEqual(libvirt.VIR_ERR_OPERATION_FAILED, error.code)

    def interrupted(self):
        """Return a post-copy that libvirt takes for failed."""
        migration = self.begin(postcopy=True)
        self.domain.state.return_value = [
            libvirt.VIR_DOMAIN_PAUSED,
            libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED]
        self.source.progress.return_value = progress.Progress(
            status='postcopy-paused')
        self.error = failure(libvirt.VIR_ERR_OPERATION_FAILED)
        self.outcome.set()
        migration._outcome(10)
        error = self.assertRaises(errors.MigrationFailed, migration.wait, 10)
        self.assertEqual('postcopy-paused', error.status)
        return migration

    def test_interrupted_postcopy(self):
        migration = self.interrupted()
        self.assertEqual('postcopy-paused', migration.progress().status)

    def test_postcopy_that_goes_on_unattended(self):
        migration = self.interrupted()
        self.source.progress.return_value = progress.Progress(
            status='postcopy-active')
        self.assertEqual('postcopy-active', migration.progress().status)
        gone = errors.GuestNotRunning(name='source')
        self.source.progress.side_effect = gone
        self.domain.state.side_effect = failure(libvirt.VIR_ERR_NO_DOMAIN)
        self.destination.progress.side_effect = [
            errors.InvalidMigrationState(action='ask', status='incoming'),
            progress.Progress(status='completed')]
        self.assertEqual('completed', migration.wait(10).status)

    def test_postcopy_in_which_both_sides_are_lost(self):
        migration = self.interrupted()
        self.source.progress.side_effect = errors.GuestNotRunning(
            name='source')
        self.destination.progress.side_effect = errors.GuestNotRunning(
            name='destination')
        error = self.assertRaises(errors.MigrationFailed, migration.wait, 10)
        self.assertEqual('failed', error.status)

    def test_no_libvirt_call_for_what_is_not_offered(self):
        self.assertRaises(errors.NotOffered, self.begin,
                          pause_before_switchover=True)
        self.domain.migrateToURI3.assert_not_called()
        self.destination.become.assert_not_called()

    def test_destination_in_use(self):
        self.destination.is_alive.return_value = True
        self.destination.run_state.return_value = 'running'
        self.assertRaises(errors.InvalidMigrationState, self.begin)
        self.domain.migrateToURI3.assert_not_called()
