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
from oslo_concurrency import lockutils

from nova_dedup_migrate.compute import driver
from nova_dedup_migrate.compute import migrations
from nova_dedup_migrate.compute import monitored_guest
from nova_dedup_migrate.compute import volume_swaps
from nova_dedup_migrate.operations import session as compute_session
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import fakes
from nova_dedup_migrate.tests.unit.compute.fakes import libvirt_error
from nova_dedup_migrate.tests.unit.compute.fakes import UUID


class DriverCase(base.TestCase):

    def setUp(self):
        super().setUp()
        cls = driver.DedupMigrateLibvirtDriver
        self.driver = cls.__new__(cls)
        self.driver.dedup = mock.create_autospec(migrations.LiveMigrations,
                                                 instance=True)
        self.driver.dedup.enabled = True
        self.driver.volumes = mock.create_autospec(
            volume_swaps.VolumeSwaps, instance=True)
        self.driver._preparing = lockutils.Semaphores()
        self.instance = objects.Instance(uuid=UUID)
        self.forced = mock.Mock(spec=[])
        self.post, self.recover = mock.Mock(spec=[]), mock.Mock(spec=[])
        self.operation = fakes.operation()
        self.session = compute_session.Session(
            self.operation, self.instance, 'data', self.post, self.recover,
            self.forced, mock.Mock(spec=[]))
        self.driver._host = mock.create_autospec(libvirt_host.Host,
                                                 instance=True)
        self.driver.dedup.session_of.return_value = self.session

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
                mock.patch.object(migrations, 'LiveMigrations',
                                  autospec=True):
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


class RequestTest(DriverCase):

    def setUp(self):
        super().setUp()
        self.theirs = self.nova('check_can_live_migrate_source',
                                return_value='data')

    def check(self):
        self.assertEqual('data', self.driver.check_can_live_migrate_source(
            'context', self.instance, 'check', 'devices'))
        self.theirs.assert_called_once_with(
            self.driver, 'context', self.instance, 'check', 'devices')

    def test_it_is_kept(self):
        self.check()
        self.driver.dedup.request.assert_called_once_with(
            'context', self.instance, 'data')

    def test_off(self):
        self.driver.dedup.enabled = False
        self.check()
        self.driver.dedup.request.assert_not_called()


class LiveMigrationTest(DriverCase):

    def setUp(self):
        super().setUp()
        self.theirs = self.nova('_live_migration')
        self.driver.dedup.session.side_effect = (
            lambda *args: contextlib.nullcontext(self.session))
        self.driver.dedup.migrate.side_effect = (
            lambda context, instance, session, data, operate: operate())

    def migrate(self):
        self.driver._live_migration('context', self.instance, 'there',
                                    self.post, self.recover, False, 'data')

    def test_novas_own_is_run(self):
        self.migrate()
        self.theirs.assert_called_once_with(
            self.driver, 'context', self.instance, 'there',
            self.session.complete, self.session.recover, False, 'data')
        self.driver.dedup.session.assert_called_once_with(
            'context', self.instance, 'there', self.post, self.recover,
            False, 'data')
        self.assertEqual('running', self.operation.phase)

    def test_off(self):
        """Nova's own, with its own arguments, and nothing else."""
        self.driver.dedup.enabled = False
        self.migrate()
        self.theirs.assert_called_once_with(
            self.driver, 'context', self.instance, 'there', self.post,
            self.recover, False, 'data')
        self.driver.dedup.session.assert_not_called()

    def test_refused(self):
        self.session = None
        self.migrate()
        self.theirs.assert_not_called()

    def test_aborted_while_facts_are_collected(self):
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

    def test_error_of_libvirt_is_left_to_the_monitor(self):
        self.theirs.side_effect = libvirt_error(
            libvirt.VIR_ERR_OPERATION_ABORTED)
        self.driver._live_migration_operation(*self.arguments)
        self.session.recover('context', None, 'there', None)
        self.recover.assert_called_once_with(
            'context', self.instance, 'there', 'data',
            migration_status='cancelled')

    def test_the_end_is_noted_however_it_is(self):
        for error in (None, libvirt_error(libvirt.VIR_ERR_RPC),
                      exception.MigrationError(reason='x')):
            self.session = mock.create_autospec(
                compute_session.Session, instance=True)
            self.driver.dedup.session_of.return_value = self.session
            self.theirs.side_effect = error
            with contextlib.suppress(exception.MigrationError):
                self.driver._live_migration_operation(*self.arguments)
            self.session.operation_ended.assert_called_once_with()

    def test_other_errors_pass(self):
        self.theirs.side_effect = exception.MigrationError(reason='x')
        self.assertRaises(exception.MigrationError,
                          self.driver._live_migration_operation,
                          *self.arguments)

    def test_a_guest_that_ends_before_libvirt_is_called(self):
        """Nova's monitor believes that it has arrived."""
        self.theirs.side_effect = exception.DeviceDetachFailed(
            device='vif', reason='x')
        self.assertRaises(exception.DeviceDetachFailed,
                          self.driver._live_migration_operation,
                          *self.arguments)
        self.session.complete('context', None, 'there', False, None)
        self.post.assert_not_called()
        self.assertFalse(self.session.settled)

    def test_nova_has_given_up_meanwhile(self):
        """The thread that was to call libvirt is late."""
        self.session.fail(exception.HypervisorUnavailable())
        self.driver._live_migration_operation(*self.arguments)
        self.theirs.assert_not_called()

    def test_without_a_session(self):
        self.driver.dedup.session_of.return_value = None
        self.theirs.side_effect = libvirt_error(libvirt.VIR_ERR_RPC)
        self.assertRaises(libvirt.libvirtError,
                          self.driver._live_migration_operation,
                          *self.arguments)


class MonitorTest(DriverCase):

    def setUp(self):
        super().setUp()
        self.theirs = self.nova('_live_migration_monitor')
        self.guest = mock.create_autospec(libvirt_guest.Guest, instance=True)
        self.data = objects.LibvirtLiveMigrateData(
            migration=objects.Migration(uuid=UUID))

    def monitor(self):
        self.driver._live_migration_monitor(
            'context', self.instance, self.guest, 'there', 'post',
            'recover', False, self.data, 'future', [])
        return self.theirs.call_args.args

    def test_what_nova_sees(self):
        (_driver, context, instance, guest, *rest) = self.monitor()
        self.assertEqual(('context', ['there', 'post', 'recover', False]),
                         (context, rest[:4]))
        self.assertIsInstance(guest, monitored_guest.MonitoredGuest)
        self.assertIsInstance(instance, monitored_guest.MonitoredRecord)
        self.assertIsInstance(rest[4], monitored_guest.MonitoredData)
        self.assertEqual(UUID, rest[4].migration.uuid)
        self.assertIs(self.driver._host.get_guest.return_value,
                      guest._reopen())
        self.driver._host.get_guest.assert_called_once_with(self.instance)

    def test_without_a_session(self):
        self.driver.dedup.session_of.return_value = None
        self.theirs.side_effect = None
        arguments = self.monitor()
        self.assertIs(self.guest, arguments[3])
        self.assertIs(self.data, arguments[8])


class AbortTest(DriverCase):

    def setUp(self):
        super().setUp()
        self.theirs = self.nova('live_migration_abort')
        self.no_job = libvirt_error(libvirt.VIR_ERR_OPERATION_INVALID)

    def abort(self):
        self.driver.live_migration_abort(self.instance)

    def test_running(self):
        self.session.begin()
        self.abort()
        self.theirs.assert_called_once_with(self.driver, self.instance)

    def test_before_nova_begins(self):
        self.abort()
        self.theirs.assert_not_called()
        self.assertFalse(self.session.begin())

    def test_before_libvirt_begins(self):
        self.session.begin()
        self.theirs.side_effect = self.no_job
        self.abort()
        guest = mock.create_autospec(libvirt_guest.Guest, instance=True)
        self.session.see_job(guest)
        guest.abort_job.assert_called_once_with()

    def test_refused(self):
        self.session.begin()
        self.session.see_job(None)
        self.theirs.side_effect = self.no_job
        self.assertRaises(libvirt.libvirtError, self.abort)

    def test_no_migration(self):
        self.driver.dedup.session_of.return_value = None
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
        self.session.begin()
        self.session.see_job(None)
        self.forced.assert_called_once_with()

    def test_no_migration(self):
        self.driver.dedup.session_of.return_value = None
        self.theirs.side_effect = self.none_yet
        self.assertRaises(exception.NoActiveMigrationForInstance, self.force)


class SwapVolumeTest(DriverCase):

    def swap(self):
        self.driver.swap_volume('context', 'old', 'new', self.instance,
                                '/dev/vdb', 0)
        self.driver._swap_volume('guest', 'vdb', 'conf', 0)

    def test_filled_within_novas(self):
        events = []

        @contextlib.contextmanager
        def noted(name, *args):
            events.append((name, 'begins', *args))
            yield 'guest for nova'
            events.append((name, 'ends'))

        self.driver.volumes.swapping.side_effect = (
            lambda *args: noted('swap', *args))
        self.driver.volumes.filling.side_effect = (
            lambda *args: noted('fill', *args))
        self.nova('swap_volume',
                  side_effect=lambda *args: events.append('nova swaps'))
        self.nova('_swap_volume', side_effect=lambda _, guest, *args:
                  events.append(('nova copies', guest)))
        self.swap()
        self.assertEqual([
            ('swap', 'begins', self.instance, '/dev/vdb', 'old', 'new'),
            'nova swaps', ('swap', 'ends'),
            ('fill', 'begins', 'guest', 'vdb', 'conf'),
            ('nova copies', 'guest for nova'), ('fill', 'ends')], events)

    def test_disabled(self):
        self.driver.dedup.enabled = False
        theirs = self.nova('swap_volume'), self.nova('_swap_volume')
        self.swap()
        for one in theirs:
            one.assert_called_once()
        self.assertEqual([], self.driver.volumes.mock_calls)

    def test_live_migration_is_refused_meanwhile(self):
        theirs = self.nova('check_can_live_migrate_source')
        self.driver.volumes.require_no_swap.side_effect = (
            exception.MigrationPreCheckError(reason='swapped'))
        self.assertRaises(
            exception.MigrationPreCheckError,
            self.driver.check_can_live_migrate_source, 'context',
            self.instance, 'data')
        theirs.assert_not_called()
