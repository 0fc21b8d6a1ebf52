# SPDX-License-Identifier: Apache-2.0
import datetime
from unittest import mock

import libvirt
from nova import exception
from nova import objects
from nova.compute import task_states
from nova.virt import event as virtevent
from nova.virt.libvirt import driver as libvirt_driver
from nova.virt.libvirt import host as libvirt_host
from oslo_config import fixture as config_fixture

from nova_dedup_migrate.compute import facts_collector
from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.compute import manager
from nova_dedup_migrate.compute import migrations
from nova_dedup_migrate.compute import waiting
from nova_dedup_migrate.flows import live_migration
from nova_dedup_migrate.hypervisor import tracking
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.recovery import loop
from nova_dedup_migrate.recovery import owners
from nova_dedup_migrate.reports import notify
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import fakes

OTHER = '33333333-0000-4000-8000-000000000003'


class MigrationsCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.driver = mock.Mock(spec=libvirt_driver.LibvirtDriver)
        self.driver._host = mock.create_autospec(libvirt_host.Host,
                                                 instance=True)
        self.tracker = self.replace(tracking, 'Tracker').return_value
        self.manager = self.replace(manager, 'ManagerPort').return_value
        self.manager.queued.return_value = False
        self.manager.post_method.side_effect = lambda method: method
        self.recovery = self.replace(loop, 'RecoveryLoop').return_value
        self.recovery.held.return_value = None
        self.notifier = self.replace(notify, 'ReportNotifier').return_value
        self.agents = mock.create_autospec(api.AgentAPI, instance=True)
        patch = mock.patch.object(api.AgentAPI, 'from_conf', autospec=True,
                                  return_value=self.agents)
        patch.start()
        self.addCleanup(patch.stop)
        self.migrations = migrations.LiveMigrations(self.driver)
        self.conf = self.useFixture(config_fixture.Config(migrations.CONF))
        self.conf.config(state_path=str(self.temporary_dir()))
        self.instance = objects.Instance(
            uuid=fakes.UUID, host='here', flavor=objects.Flavor(
                extra_specs={}), system_metadata={},
            task_state=task_states.MIGRATING)
        self.now = self.instance
        self.get_instance = self.replace(
            objects.Instance, 'get_by_uuid',
            side_effect=lambda *args, **kwargs: self.now)
        self.data = objects.LibvirtLiveMigrateData(
            block_migration=False, is_shared_instance_path=True,
            is_shared_block_storage=True, migration=objects.Migration(
                uuid=fakes.MIGRATION))

    def replace(self, owner, name, **kwargs):
        patch = mock.patch.object(owner, name, autospec=True, **kwargs)
        self.addCleanup(patch.stop)
        return patch.start()

    def set(self, **options):
        self.conf.config(group='dedup_migrate', **options)

    def unfinished(self):
        return [durable for durable, _report
                in self.migrations._store.unfinished()[0]]


class StartTest(MigrationsCase):

    def interrupted(self, **fields):
        fakes.operation(**fields)
        given = operations.Operation(
            fakes.operation(**fields).durable, self.migrations._save)
        given.save()

    def test_what_an_earlier_process_has_left_is_held(self):
        self.interrupted(phase=operations.RUNNING)
        self.interrupted(id=OTHER, subject=OTHER, source='elsewhere')
        self.migrations.start('here')
        held, = self.recovery.hold.call_args_list
        self.assertEqual(fakes.MIGRATION, held.args[0].migration_uuid)
        self.assertTrue(held.kwargs['loaded'])
        # the report that it had written is not lost
        self.assertEqual('running', held.args[0].earlier.outcome)

    def test_a_store_that_cannot_be_read(self):
        self.set(operations_path='/dev/null/x')
        self.driver.list_instance_uuids.return_value = ['a']
        self.migrations.start('here')
        self.tracker.look_at_all.assert_called_once_with(['a'], mock.ANY)

    def test_libvirt_is_no_reason_not_to_start(self):
        self.driver.list_instance_uuids.side_effect = OSError('gone')
        self.migrations.start('here')

    def test_nova_is_shown_all_but_those_that_recovery_has(self):
        self.recovery.held.side_effect = (
            lambda uuid: 'operation' if uuid != OTHER else None)
        instances = [
            objects.Instance(uuid=fakes.UUID,
                             task_state=task_states.MIGRATING),
            objects.Instance(uuid=OTHER, task_state=task_states.MIGRATING),
            objects.Instance(uuid=fakes.UUID, task_state=None)]
        self.assertEqual(instances[1:], list(self.migrations.take_over(
            'context', objects.InstanceList(objects=instances))))

    def test_stop(self):
        self.migrations.stop()
        self.tracker.stop.assert_called_once_with()
        self.recovery.stop.assert_not_called()
        self.migrations.start('here')
        self.interrupted(phase=operations.RUNNING)
        self.migrations.start('here')
        self.migrations.stop()
        self.recovery.stop.assert_called_once_with()


class TrackingTest(MigrationsCase):

    def event(self, kind=virtevent.EVENT_LIFECYCLE_STARTED):
        self.migrations.see_event(virtevent.LifecycleEvent(fakes.UUID, kind))

    def test_guests_that_start(self):
        self.event()
        self.event(virtevent.EVENT_LIFECYCLE_STOPPED)
        self.tracker.look.assert_called_once_with(fakes.UUID)

    def test_off(self):
        self.set(enabled=False)
        self.event()
        self.tracker.look.assert_not_called()

    def test_one_query_for_all(self):
        off = objects.Instance(
            uuid=OTHER, system_metadata={}, flavor=objects.Flavor(
                extra_specs={'dedup_migrate:strategy': 'off'}))
        found = self.replace(objects.InstanceList, 'get_by_host',
                             return_value=[self.instance, off])
        self.assertEqual({fakes.UUID: True, OTHER: False},
                         self.migrations._all_wanted('here'))
        found.assert_called_once()
        self.set(enabled=False)
        self.assertEqual({}, self.migrations._all_wanted('here'))
        found.assert_called_once()

    def test_one_guest(self):
        opened = self.replace(guests, 'open_guest')
        for wanted, track_io, expected in (
                (None, True, True), (None, False, False),
                (False, True, False)):
            self.set(track_io=track_io)
            self.assertEqual((opened.return_value, expected),
                             self.migrations._resolve(fakes.UUID, wanted))

    def test_no_instance_of_nova(self):
        self.get_instance.side_effect = exception.InstanceNotFound(
            instance_id=fakes.UUID)
        self.assertRaises(LookupError, self.migrations._resolve, fakes.UUID,
                          None)


class RequestTest(MigrationsCase):

    def setUp(self):
        super().setUp()
        self.manager.requested.return_value = objects.Migration(
            uuid=fakes.MIGRATION)
        self.manager.volumes.return_value = {OTHER: 'attachment'}

    def test_kept_before_nova_begins(self):
        self.migrations.request('context', self.instance, self.data)
        kept, = self.unfinished()
        self.assertEqual((operations.REQUESTED, 'here', ''),
                         (kept.phase, kept.source, kept.destination))
        self.assertEqual({OTHER: 'attachment'}, kept.data['volumes'])
        self.recovery.hold.assert_called_once()

    def test_no_migration_of_nova(self):
        self.manager.requested.return_value = None
        self.migrations.request('context', self.instance, self.data)
        self.assertEqual([], self.unfinished())

    def test_errors_are_no_reason_not_to_migrate(self):
        self.manager.requested.side_effect = exception.NovaException('x')
        self.migrations.request('context', self.instance, self.data)
        self.manager.requested.side_effect = None
        self.set(operations_path='/dev/null/x')
        self.migrations.request('context', self.instance, self.data)
        self.recovery.hold.assert_not_called()


class SessionTest(MigrationsCase):

    def setUp(self):
        super().setUp()
        self.post, self.recover = mock.Mock(spec=[]), mock.Mock(spec=[])

    def session(self):
        return self.migrations.session(
            'context', self.instance, 'there', self.post, self.recover,
            False, self.data)

    def test_owned(self):
        with self.session() as session:
            self.assertIs(session,
                          self.migrations.session_of(self.instance))
            self.assertEqual(owners.SESSION,
                             self.migrations._owners.owner(fakes.UUID))
            kept, = self.unfinished()
            self.assertEqual((operations.PREPARING, 'there'),
                             (kept.phase, kept.destination))
        self.assertIsNone(self.migrations.session_of(self.instance))
        self.assertEqual('', self.migrations._owners.owner(fakes.UUID))

    def test_completed(self):
        with self.session() as session:
            session.operation_ended()
            session.complete('context', None, 'there', False, None)
        self.recovery.release.assert_called_once_with(session.operation)
        self.recovery.settle_soon.assert_not_called()

    def test_a_last_step_fails(self):
        self.post.side_effect = exception.NovaException('x')
        with self.session() as session:
            session.operation_ended()
            session.complete('context', None, 'there', False, None)
        self.recovery.release.assert_not_called()
        self.recovery.settle_soon.assert_called_once_with(fakes.UUID)
        self.assertEqual(operations.FINISHING, session.operation.phase)

    def test_novas_thread_fails(self):
        """The error is a fault of the instance; recovery decides."""
        error = exception.HypervisorUnavailable()
        with self.session() as session:
            raise error
        self.manager.add_fault.assert_called_once_with(session.operation,
                                                       error)
        self.recovery.settle_soon.assert_called_once_with(fakes.UUID)

    def test_what_the_check_has_kept_is_continued(self):
        held = operations.Operation(fakes.operation(
            destination='', data={'volumes': {OTHER: 'old'}}).durable,
            self.migrations._save)
        self.recovery.held.return_value = held
        with self.session() as session:
            self.assertIs(held, session.operation)
        self.assertEqual('there', held.destination)
        self.assertEqual({OTHER: 'old'}, held.durable.data['volumes'])
        self.recovery.hold.assert_not_called()

    def test_a_request_that_comes_after_a_restart(self):
        """The report is that of the migration, not of its request."""
        held = operations.Operation(
            fakes.operation(destination='').durable, self.migrations._save,
            report.Report(fakes.MIGRATION, fakes.UUID, 'here', '',
                          datetime.datetime.now(datetime.timezone.utc)))
        self.recovery.held.return_value = held
        with self.session() as session:
            session.operation.explain('a reason')
            session.operation.save()
        made = self.migrations._store.read(fakes.MIGRATION)
        self.assertEqual(('there', 'nova.conf'),
                         (made.destination, made.strategy_source))

    def refused(self):
        with self.session() as session:
            self.assertIsNone(session)
        self.assertEqual([], self.unfinished())
        self.manager.reclaim.assert_called_once_with('context',
                                                     self.instance)

    def test_nova_has_cleared_the_task_state(self):
        self.now = objects.Instance(uuid=fakes.UUID, host='here',
                                    task_state=None)
        self.refused()
        self.recover.assert_called_once_with(
            'context', self.instance, 'there', self.data,
            migration_status='cancelled')

    def test_the_instance_is_on_another_host(self):
        self.now = objects.Instance(uuid=fakes.UUID, host='third',
                                    task_state=task_states.MIGRATING)
        self.manager.reclaim.side_effect = exception.MigrationError(
            reason='x')
        self.refused()
        self.recover.assert_not_called()

    def test_recovery_still_settles_the_one_before(self):
        with mock.patch.object(migrations, '_SETTLE_S', 0.01), \
                self.migrations._owners.claim(fakes.UUID, owners.RECOVERY):
            self.refused()

    def test_the_database_is_away(self):
        self.get_instance.side_effect = exception.NovaException('x')
        with self.session() as session:
            self.assertIsNotNone(session)


class MigrateTest(MigrationsCase):

    def setUp(self):
        super().setUp()
        self.open_guest = self.replace(guests, 'open_guest')
        self.guest = self.open_guest.return_value
        self.guest.is_patched.return_value = True
        self.run = self.replace(live_migration, 'run')
        self.operate = mock.Mock(spec=[])
        self.session = mock.Mock(operation=fakes.operation())

    def migrate(self):
        self.migrations.migrate('context', self.instance, self.session,
                                self.data, self.operate)

    def test_the_flow_is_run(self):
        collected = self.replace(facts_collector.FactsCollector, 'collect')
        self.migrate()
        operation, ports = self.run.call_args.args
        self.assertIs(self.session.operation, operation)
        self.assertEqual('', ports.reason_for_stock)
        self.assertIs(self.operate, ports.operate)
        self.assertIs(collected.return_value, ports.collect_facts())
        ports.collect_incoming()
        self.agents.incoming.assert_called_once_with(
            'context', 'there', fakes.UUID, fakes.MIGRATION)
        self.operate.assert_not_called()

    def rate(self):
        self.migrate()
        return self.run.call_args.args[1].rate

    def test_rate_of_each_round(self):
        self.assertIsNone(self.rate())
        self.conf.config(group='dedup_migrate', pacing='adaptive',
                         pacing_minimum=50, pacing_maximum=400)
        rate = self.rate()
        self.assertEqual((6_250_000, 50_000_000),
                         (rate.minimum, rate.maximum))
        # MiB/s
        self.conf.config(group='libvirt', live_migration_bandwidth=10)
        self.assertEqual(10 << 20, self.rate().maximum)
        self.session.operation.durable.strategy = 'off'
        self.assertIsNone(self.rate())

    def test_no_facts_are_collected_for_nothing(self):
        self.guest.is_patched.return_value = False
        self.migrate()
        self.assertIn('QEMU', self.run.call_args.args[1].reason_for_stock)
        self.guest.is_patched.side_effect = AssertionError
        self.session.operation.durable.strategy = 'off'
        self.migrate()
        self.assertIn('off', self.run.call_args.args[1].reason_for_stock)

    def test_no_guest(self):
        """Nova's own is run, and finds out."""
        self.open_guest.side_effect = LookupError(fakes.UUID)
        self.migrate()
        self.operate.assert_called_once_with()
        self.run.assert_not_called()


class LibvirtTest(MigrationsCase):

    def setUp(self):
        super().setUp()
        self.method = mock.Mock(spec=[], return_value='done')
        self.wait = self.replace(waiting, 'await_libvirt')

    def call(self):
        return self.migrations.with_libvirt(self.instance, self.method, 'a',
                                            b='c')

    def test_libvirtd_ends_in_the_middle(self):
        self.method.side_effect = [
            fakes.libvirt_error(libvirt.VIR_ERR_RPC),
            exception.HypervisorUnavailable(), mock.DEFAULT]
        self.assertEqual('done', self.call())
        self.method.assert_called_with('a', b='c')
        self.assertEqual((3, 3), (self.method.call_count,
                                  self.wait.call_count))

    def test_not_for_ever(self):
        self.method.side_effect = exception.HypervisorUnavailable()
        self.assertRaises(exception.HypervisorUnavailable, self.call)
        self.assertEqual(3, self.method.call_count)

    def test_other_errors_pass(self):
        self.method.side_effect = exception.MigrationError(reason='x')
        self.assertRaises(exception.MigrationError, self.call)
        self.method.assert_called_once()


class SaveTest(MigrationsCase):

    def test_report_is_sent_when_it_has_ended(self):
        operation = operations.Operation(
            fakes.operation().durable, self.migrations._save)
        operation.save()
        self.notifier.end.assert_not_called()
        operation.finish('cancelled')
        self.notifier.end.side_effect = RuntimeError('no bus')
        operation.enter(operations.ENDED)
        report = self.migrations._store.read(fakes.MIGRATION)
        self.notifier.end.assert_called_once_with(report)
        self.assertEqual('cancelled', report.outcome)
        self.assertEqual([], operation.warnings)

    def test_report_is_sent_even_if_it_cannot_be_written(self):
        self.set(operations_path='/dev/null/x')
        operation = operations.Operation(
            fakes.operation().durable, self.migrations._save)
        operation.enter(operations.ENDED)
        self.notifier.end.assert_called_once()
        self.assertEqual(1, len(operation.warnings))
