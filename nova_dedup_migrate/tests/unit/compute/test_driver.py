# SPDX-License-Identifier: Apache-2.0
"""The driver's overrides; all around them is Nova's, and mocked."""

import contextlib
import threading
from unittest import mock

import libvirt
from nova import exception
from nova import objects
from nova.virt import event as virtevent
from nova.virt.libvirt import config as libvirt_config
from nova.virt.libvirt import driver as libvirt_driver
from nova.virt.libvirt import guest as libvirt_guest
from nova.virt.libvirt import host as libvirt_host
import oslo_messaging

from nova_dedup_migrate.compute import attempt as compute_attempt
from nova_dedup_migrate.compute import driver
from nova_dedup_migrate.compute import figures
from nova_dedup_migrate.compute import service
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute.test_attempt import libvirt_error
from nova_dedup_migrate.tests.unit.tasks import fakes

UUID = '22222222-0000-4000-8000-000000000002'


class DriverCase(base.TestCase):

    def setUp(self):
        super().setUp()
        cls = driver.DedupMigrateLibvirtDriver
        self.driver = cls.__new__(cls)
        self.driver.dedup = mock.create_autospec(service.DedupMigrate,
                                                 instance=True)
        self.instance = objects.Instance(uuid=UUID)
        self.forced = mock.Mock(spec=[])
        self.there = mock.Mock(spec=[], return_value='here')
        self.attempt = compute_attempt.Attempt(fakes.record(), self.forced,
                                               self.there,
                                               mock.Mock(spec=[]))
        self.driver._host = mock.create_autospec(libvirt_host.Host,
                                                 instance=True)
        self.driver.dedup.attempt_of.return_value = self.attempt

    def nova(self, method, **kwargs):
        """Replace a method of Nova's class."""
        patch = mock.patch.object(libvirt_driver.LibvirtDriver, method,
                                  autospec=True, **kwargs)
        self.addCleanup(patch.stop)
        return patch.start()


class ConnectionTest(base.TestCase):

    def test_libvirt_is_lost_while_nova_asks_for_it(self):
        """The call that notices it tells so before it fails."""
        if not hasattr(libvirt_host.Host, '_connection_closed'):
            self.skipTest('this Nova has another thread tell it')
        host = libvirt_host.Host('qemu:///system')

        def begin(driver, virtapi, read_only=False):
            driver._host = host

        with mock.patch.object(libvirt_driver.LibvirtDriver, '__init__',
                               autospec=True, side_effect=begin), \
                mock.patch.object(service, 'DedupMigrate', autospec=True):
            driver.DedupMigrateLibvirtDriver(None)
        lost = mock.create_autospec(libvirt.virConnect, instance=True)
        error = libvirt_error(libvirt.VIR_ERR_SYSTEM_ERROR)
        error.err = (error.err[0], libvirt.VIR_FROM_RPC, *error.err[2:])

        def version():
            host._connection_closed(lost, False, 'gone')
            raise error

        lost.getLibVersion.side_effect = version
        host._wrapped_conn = lost
        answers = []
        with mock.patch.object(host, '_get_new_connection', autospec=True,
                               return_value='new'):
            thread = threading.Thread(
                target=lambda: answers.append(host.get_connection()),
                daemon=True)
            thread.start()
            thread.join(20)
        self.assertEqual(['new'], answers)


class HostTest(DriverCase):

    def test_init_host(self):
        theirs = self.nova('init_host')
        self.driver.init_host('here')
        theirs.assert_called_once_with(self.driver, 'here')
        self.driver.dedup.start.assert_called_once_with('here')

    def test_instances_at_startup(self):
        if not hasattr(libvirt_driver.LibvirtDriver,
                       'process_instances_at_startup'):
            self.skipTest('this Nova does not show us the instances')
        theirs = self.nova('process_instances_at_startup')
        self.assertIs(
            self.driver.dedup.take_over.return_value,
            self.driver.process_instances_at_startup('context', ['all']))
        theirs.assert_called_once_with(self.driver, 'context', ['all'])
        self.driver.dedup.take_over.assert_called_once_with(
            'context', theirs.return_value)

    def test_cleanup_host(self):
        theirs = self.nova('cleanup_host')
        self.driver.cleanup_host('here')
        theirs.assert_called_once_with(self.driver, 'here')
        self.driver.dedup.stop.assert_called_once_with()

    def test_event(self):
        theirs = self.nova('emit_event')
        event = virtevent.LifecycleEvent(
            UUID, virtevent.EVENT_LIFECYCLE_STARTED)
        self.driver.emit_event(event)
        theirs.assert_called_once_with(self.driver, event)
        self.driver.dedup.see_event.assert_called_once_with(event)


class ConnectionEventTest(DriverCase):

    def see(self, connection, enabled):
        theirs = self.nova('_handle_conn_event')
        self.driver._host._wrapped_conn = connection
        self.driver._handle_conn_event(enabled, 'reason')
        return theirs

    def test_lost(self):
        self.see(None, False).assert_called_once_with(self.driver, False,
                                                      'reason')

    def test_there_again(self):
        self.see('new', True).assert_called_once_with(self.driver, True,
                                                      'reason')

    def test_one_is_lost_that_was_replaced(self):
        self.see('new', False).assert_not_called()


class PortTest(DriverCase):

    def test_port(self):
        theirs = self.nova('_set_qemu_guest_agent')
        self.instance.system_metadata = {
            'image_dedup_migrate:page_cache_port': 'true'}
        self.instance.id = 7
        guest = libvirt_config.LibvirtConfigGuest()
        self.driver._set_qemu_guest_agent(guest, 'flavor', self.instance,
                                          'image')
        theirs.assert_called_once_with(self.driver, guest, 'flavor',
                                       self.instance, 'image')
        port, = guest.devices
        self.assertIn('page_cache.0', port.to_xml())


class LiveMigrationTest(DriverCase):

    def setUp(self):
        super().setUp()
        self.theirs = self.nova('_live_migration')
        self.driver.dedup.attempt.return_value = contextlib.nullcontext(
            self.attempt)
        self.driver.dedup.migrate.side_effect = (
            lambda context, instance, data, attempt, operate: operate())
        self.driver.dedup.refuses.return_value = False
        self.post, self.recover = mock.Mock(spec=[]), mock.Mock(spec=[])

    def migrate(self):
        self.driver._live_migration('context', self.instance, 'there',
                                    self.post, self.recover, False, 'data')

    def test_novas_own_is_run(self):
        self.migrate()
        self.theirs.assert_called_once_with(
            self.driver, 'context', self.instance, 'there', mock.ANY,
            mock.ANY, False, 'data')
        self.driver.dedup.attempt.assert_called_once_with(
            self.instance, 'there', False, 'data')
        self.recover.assert_not_called()

    def test_refused(self):
        self.driver.dedup.refuses.return_value = True
        self.migrate()
        self.driver.dedup.refuses.assert_called_once_with(
            'context', self.instance, 'there', self.recover, 'data')
        self.theirs.assert_not_called()
        self.driver.dedup.attempt.assert_not_called()

    def test_methods_are_passed_on(self):
        def theirs(driver, context, instance, dest, post_method,
                   recover_method, block_migration, migrate_data):
            self.attempt.operation_ended()
            post_method(context, instance, dest, block_migration, 'post')
            recover_method('recover')

        self.theirs.side_effect = theirs
        self.migrate()
        self.post.assert_called_once_with('context', self.instance, 'there',
                                          False, 'post')
        self.recover.assert_called_once_with('recover')
        self.assertEqual('completed', self.attempt.record.outcome)

    def test_exception_passes(self):
        def theirs(*args):
            self.attempt.enter()
            raise exception.MigrationError(reason='x')

        self.theirs.side_effect = theirs
        self.assertRaises(exception.MigrationError, self.migrate)
        self.recover.assert_not_called()

    def test_error_before_libvirt_was_called(self):
        self.theirs.side_effect = exception.HypervisorUnavailable()
        self.migrate()
        self.recover.assert_called_once_with(
            'context', self.instance, 'there', 'data')
        self.assertEqual('failed', self.attempt.record.outcome)
        # the thread that was to call it is late
        operation = self.nova('_live_migration_operation')
        self.driver._live_migration_operation(
            'context', self.instance, 'there', False, 'data', 'guest', [])
        operation.assert_not_called()

    def test_error_after_the_guest_was_settled(self):
        def theirs(driver, context, instance, dest, post, recover, *args):
            recover(context, instance, dest, 'data')
            raise exception.MigrationError(reason='x')

        self.theirs.side_effect = theirs
        self.assertRaises(exception.MigrationError, self.migrate)
        self.recover.assert_called_once_with(
            'context', self.instance, 'there', 'data')

    def test_libvirt_is_waited_for(self):
        def theirs(*args):
            self.driver.dedup.await_libvirt.assert_called_once_with(
                self.instance)

        self.theirs.side_effect = theirs
        self.migrate()
        self.theirs.assert_called_once()
        self.recover.assert_not_called()

    def test_aborted_while_facts_are_gathered(self):
        self.driver.live_migration_abort(self.instance)
        self.migrate()
        self.theirs.assert_not_called()
        self.recover.assert_called_once_with(
            'context', self.instance, 'there', 'data',
            migration_status='cancelled')


class OperationTest(DriverCase):

    def setUp(self):
        super().setUp()
        self.theirs = self.nova('_live_migration_operation')
        self.arguments = ('context', self.instance, 'there', False, 'data',
                          'guest', ['vda'])

    def test_passed_on(self):
        self.driver._live_migration_operation(*self.arguments)
        self.theirs.assert_called_once_with(self.driver, *self.arguments)

    def test_error_of_libvirt_is_the_monitors_affair(self):
        self.theirs.side_effect = libvirt_error(
            libvirt.VIR_ERR_OPERATION_ABORTED)
        self.driver._live_migration_operation(*self.arguments)
        recover = mock.Mock(spec=[])
        self.attempt.recovering(recover)('context')
        recover.assert_called_once_with('context',
                                        migration_status='cancelled')

    def test_the_end_is_noted_however_it_is(self):
        for error in (None, libvirt_error(libvirt.VIR_ERR_RPC),
                      exception.MigrationError(reason='x')):
            self.attempt = mock.create_autospec(
                compute_attempt.Attempt, instance=True)
            self.driver.dedup.attempt_of.return_value = self.attempt
            self.theirs.side_effect = error
            with contextlib.suppress(exception.MigrationError):
                self.driver._live_migration_operation(*self.arguments)
            self.attempt.operation_ended.assert_called_once_with()

    def test_other_errors_pass(self):
        self.theirs.side_effect = exception.MigrationError(reason='x')
        self.assertRaises(exception.MigrationError,
                          self.driver._live_migration_operation,
                          *self.arguments)

    def test_without_an_attempt(self):
        self.driver.dedup.attempt_of.return_value = None
        self.theirs.side_effect = libvirt_error(libvirt.VIR_ERR_RPC)
        self.assertRaises(libvirt.libvirtError,
                          self.driver._live_migration_operation,
                          *self.arguments)


class MonitorTest(DriverCase):

    def setUp(self):
        super().setUp()
        self.theirs = self.nova('_live_migration_monitor')
        self.guest = mock.create_autospec(libvirt_guest.Guest, instance=True)
        self.rest = ('there', 'post', 'recover', False, 'data', 'future', [])

    def monitor(self):
        self.driver._live_migration_monitor('context', self.instance,
                                            self.guest, *self.rest)

    def test_guest_with_our_figures(self):
        self.monitor()
        self.theirs.assert_called_once_with(
            self.driver, 'context', self.instance, mock.ANY, *self.rest)
        seen = self.theirs.call_args.args[3]
        self.assertIsInstance(seen, figures.MigratingGuest)
        self.assertIs(self.driver._host.get_guest.return_value,
                      seen._reopen())
        self.driver._host.get_guest.assert_called_once_with(self.instance)

    def test_the_bus_is_away_for_a_while(self):
        lost = oslo_messaging.MessagingTimeout('late')
        self.theirs.side_effect = [lost, lost, None]
        with mock.patch.object(compute_attempt, '_INTERVAL_S', 0):
            self.monitor()
        self.assertEqual(3, self.theirs.call_count)
        trouble, = self.attempt.record.warnings
        self.assertIn('late', trouble)

    def test_the_bus_is_away_when_it_is_over(self):
        def end(*args):
            self.attempt.over('completed')
            raise oslo_messaging.MessagingTimeout('late')

        self.theirs.side_effect = end
        self.assertRaises(oslo_messaging.MessagingTimeout, self.monitor)
        self.theirs.assert_called_once()

    def test_other_errors_pass(self):
        self.theirs.side_effect = libvirt_error(libvirt.VIR_ERR_RPC)
        self.assertRaises(libvirt.libvirtError, self.monitor)
        self.theirs.side_effect = oslo_messaging.MessagingTimeout('late')
        self.driver.dedup.attempt_of.return_value = None
        self.assertRaises(oslo_messaging.MessagingTimeout, self.monitor)

    def test_without_an_attempt(self):
        self.driver.dedup.attempt_of.return_value = None
        self.monitor()
        self.assertIs(self.guest, self.theirs.call_args.args[3])


class AbortTest(DriverCase):

    def setUp(self):
        super().setUp()
        self.theirs = self.nova('live_migration_abort')
        self.no_job = libvirt_error(libvirt.VIR_ERR_OPERATION_INVALID)

    def abort(self):
        self.driver.live_migration_abort(self.instance)

    def test_running(self):
        self.attempt.begin()
        self.abort()
        self.theirs.assert_called_once_with(self.driver, self.instance)

    def test_before_nova_begins(self):
        self.abort()
        self.theirs.assert_not_called()
        self.assertFalse(self.attempt.begin())

    def test_before_libvirt_begins(self):
        self.attempt.begin()
        self.theirs.side_effect = self.no_job
        self.abort()
        guest = mock.create_autospec(libvirt_guest.Guest, instance=True)
        self.attempt.job_seen(guest)
        guest.abort_job.assert_called_once_with()

    def test_refused(self):
        self.attempt.begin()
        self.attempt.job_seen(None)
        self.theirs.side_effect = self.no_job
        self.assertRaises(libvirt.libvirtError, self.abort)

    def test_no_migration(self):
        self.driver.dedup.attempt_of.return_value = None
        self.theirs.side_effect = self.no_job
        self.assertRaises(libvirt.libvirtError, self.abort)


class ForceCompleteTest(DriverCase):

    def setUp(self):
        super().setUp()
        self.theirs = self.nova('live_migration_force_complete')
        self.none_yet = exception.NoActiveMigrationForInstance(
            instance_id=UUID)

    def force(self):
        self.driver.live_migration_force_complete(self.instance)

    def test_running(self):
        self.force()
        self.theirs.assert_called_once_with(self.driver, self.instance)

    def test_before_nova_begins(self):
        self.theirs.side_effect = self.none_yet
        self.force()
        self.attempt.begin()
        self.attempt.job_seen(None)
        self.forced.assert_called_once_with()

    def test_no_migration(self):
        self.driver.dedup.attempt_of.return_value = None
        self.theirs.side_effect = self.none_yet
        self.assertRaises(exception.NoActiveMigrationForInstance, self.force)
