# SPDX-License-Identifier: Apache-2.0
from concurrent import futures
from unittest import mock

from nova import exception
from nova import objects
from nova.virt import event as virtevent
from nova.virt.libvirt import driver as libvirt_driver
from oslo_config import fixture as config_fixture
import oslo_messaging

from nova_dedup_migrate.compute import facts_collector
from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.compute import journal
from nova_dedup_migrate.compute import overdue
from nova_dedup_migrate.compute import recovery
from nova_dedup_migrate.compute import service
from nova_dedup_migrate.compute import stranded
from nova_dedup_migrate.compute import tracking
from nova_dedup_migrate.compute import waiting
from nova_dedup_migrate.flows import live_migration
from nova_dedup_migrate.reports import keeper
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import transport
from nova_dedup_migrate.tests import base

UUID = '22222222-0000-4000-8000-000000000002'
OTHER = '33333333-0000-4000-8000-000000000003'
MIGRATION = '11111111-0000-4000-8000-000000000001'


class ServiceCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.driver = mock.create_autospec(libvirt_driver.LibvirtDriver,
                                           instance=True)
        self.driver._host = mock.Mock(spec=['get_guest'])
        self.driver.virtapi = mock.Mock(spec=['_compute'])
        self.driver.virtapi._compute = mock.Mock(
            _waiting_live_migrations={})
        self.tracker = self.replace(tracking, 'Tracker').return_value
        self.reports = self.replace(keeper, 'ReportKeeper').return_value
        self.service = service.DedupMigrate(self.driver)
        self.conf = self.useFixture(config_fixture.Config(service.CONF))
        self.conf.config(state_path=str(self.temporary_dir()))
        self.instance = objects.Instance(
            uuid=UUID, flavor=objects.Flavor(extra_specs={}),
            system_metadata={})

    def replace(self, owner, name, **kwargs):
        patch = mock.patch.object(owner, name, autospec=True, **kwargs)
        self.addCleanup(patch.stop)
        return patch.start()

    def set(self, **options):
        self.conf.config(group='dedup_migrate', **options)


class LifeTest(ServiceCase):

    def setUp(self):
        super().setUp()
        self.overdue = self.replace(overdue, 'Overdue').return_value

    def test_start(self):
        self.driver.list_instance_uuids.return_value = ['a', 'b']
        with mock.patch.object(journal.Journal, 'tidy',
                               autospec=True) as tidy:
            for error in (None, OSError('full')):
                tidy.side_effect = error
                self.service.start('here')
                self.assertEqual([mock.call('a'), mock.call('b')],
                                 self.tracker.look.mock_calls)
                self.reports.close_unfinished.assert_called_once_with()
                self.overdue.start.assert_called_once_with()
                self.overdue.start.reset_mock()
                self.tracker.look.reset_mock()
                self.reports.close_unfinished.reset_mock()

    def test_reports_are_no_reason_not_to_start(self):
        self.driver.list_instance_uuids.return_value = ['a']
        self.reports.close_unfinished.side_effect = OSError('full')
        self.service.start('here')
        self.tracker.look.assert_called_once_with('a')

    def test_libvirt_is_no_reason_not_to_start(self):
        self.driver.list_instance_uuids.side_effect = OSError('gone')
        self.service.start('here')

    def test_stop(self):
        owners = [self.replace(module, name).return_value
                  for module, name in ((recovery, 'Recovery'),
                                       (stranded, 'Stranded'))]
        self.service.stop()
        for each in (self.tracker, self.overdue, *owners):
            each.stop.assert_called_once_with()

    def test_runs_here(self):
        get_guest = self.driver._host.get_guest
        for active in (True, False):
            get_guest.return_value.is_active.return_value = active
            self.assertIs(active, self.service._runs_here(self.instance))
        get_guest.assert_called_with(self.instance)
        get_guest.side_effect = exception.InstanceNotFound(instance_id=UUID)
        self.assertFalse(self.service._runs_here(self.instance))

    def test_in_hand(self):
        self.assertFalse(self.service._in_hand(UUID))
        for owner in (self.service._attempts, self.service._recovery,
                      self.service._stranded):
            if isinstance(owner, dict):
                owner[UUID] = 'attempt'
                self.assertTrue(self.service._in_hand(UUID))
                del owner[UUID]
            else:
                with mock.patch.object(owner, 'has', autospec=True,
                                       return_value=True) as has:
                    self.assertTrue(self.service._in_hand(UUID))
                has.assert_called_once_with(UUID)
        waits = self.driver.virtapi._compute._waiting_live_migrations
        waits[UUID] = (None, None)
        self.assertTrue(self.service._in_hand(UUID))
        future = futures.Future()
        waits[UUID] = ('migration', future)
        self.assertTrue(self.service._in_hand(UUID))
        self.assertFalse(self.service._in_hand(OTHER))
        future.set_exception(KeyError())
        self.assertFalse(self.service._in_hand(UUID))

    def take_over(self, interrupted, lost):
        """Return what is left to Nova.

        :param interrupted: what Recovery.begin does, for a mock
        :param lost: Stranded.begin, likewise
        """
        recoveries = self.replace(recovery, 'Recovery')
        recoveries.return_value.begin.configure_mock(**interrupted)
        waiting = self.replace(stranded, 'Stranded')
        waiting.return_value.begin.configure_mock(**lost)
        instances = [objects.Instance(uuid=uuid) for uuid in (UUID, OTHER)]
        left = self.service.take_over('context', instances)
        manager = self.driver.virtapi._compute
        recoveries.assert_called_once_with(
            service.CONF.host, self.driver._host.get_guest,
            self.service._state_at, self.service._forget_at, manager,
            self.service._journal)
        recoveries.return_value.begin.assert_called_once_with(instances)
        waiting.assert_called_once_with(service.CONF.host, manager,
                                        recoveries.return_value.run,
                                        self.service._runs_here)
        waiting.return_value.begin.assert_called_once_with('context',
                                                           mock.ANY)
        return [instance.uuid for instance in left]

    def test_interrupted_migrations_are_taken_over(self):
        self.assertEqual([OTHER], self.take_over(
            {'return_value': {UUID}}, {'return_value': set()}))
        # those the journal knows are not looked at twice
        begin = stranded.Stranded.return_value.begin
        self.assertEqual([OTHER], [one.uuid for one in
                                   begin.call_args.args[1]])

    def test_lost_requests_are_taken_over(self):
        self.assertEqual([UUID], self.take_over(
            {'return_value': set()}, {'return_value': {OTHER}}))

    def test_recovery_is_no_reason_not_to_start(self):
        gone = {'side_effect': OSError('gone')}
        self.assertEqual([UUID, OTHER], self.take_over(gone, gone))

    def test_events(self):
        for transition in virtevent.NAMES:
            self.service.see_event(virtevent.LifecycleEvent(
                str(transition), transition))
        self.assertEqual(
            [mock.call(str(virtevent.EVENT_LIFECYCLE_STARTED)),
             mock.call(str(virtevent.EVENT_LIFECYCLE_RESUMED))],
            self.tracker.look.mock_calls)

    def test_other_events(self):
        self.service.see_event(virtevent.InstanceEvent(UUID))
        self.tracker.look.assert_not_called()


class ResolveTest(ServiceCase):

    def setUp(self):
        super().setUp()
        self.get = self.replace(objects.Instance, 'get_by_uuid')
        self.get.return_value = self.instance
        self.open_guest = self.replace(guests, 'open_guest')

    def check(self, wanted):
        guest, answer = self.service._resolve(UUID)
        self.assertIs(self.open_guest.return_value, guest)
        self.assertIs(wanted, answer)

    def test_wanted(self):
        self.check(True)

    def test_disabled(self):
        self.set(enabled=False)
        self.check(False)

    def test_not_tracked(self):
        self.set(track_io=False)
        self.check(False)

    def test_off_by_flavor(self):
        self.instance.flavor.extra_specs = {'dedup_migrate:strategy': 'off'}
        self.check(False)

    def test_not_novas(self):
        self.get.side_effect = exception.InstanceNotFound(instance_id=UUID)
        self.assertRaises(LookupError, self.service._resolve, UUID)


class MigrateTest(ServiceCase):

    def setUp(self):
        super().setUp()
        self.conf.config(host='here')
        self.run = self.replace(live_migration, 'run')
        self.open_guest = self.replace(guests, 'open_guest')
        self.replace(transport, 'get_transport')
        self.agents = self.replace(api, 'AgentAPI').return_value
        self.replace(facts_collector, 'FactsCollector')
        self.operate = mock.Mock(spec=[])
        self.data = objects.LibvirtLiveMigrateData(
            migration=objects.Migration(uuid=MIGRATION))

    def migrate(self):
        with self.service.attempt(self.instance, 'there', False,
                                  self.data) as attempt:
            self.assertIs(attempt, self.service.attempt_of(self.instance))
            self.service.migrate('context', self.instance, self.data,
                                 attempt, self.operate)
        self.assertIsNone(self.service.attempt_of(self.instance))
        return attempt.record

    def test_flow(self):
        record = self.migrate()
        self.assertEqual(
            (MIGRATION, UUID, 'here', 'there', 'auto', 'nova.conf'),
            (record.migration_uuid, record.instance_uuid, record.source,
             record.destination, record.strategy, record.strategy_source))
        self.run.assert_called_once_with(record, mock.ANY)
        hands = self.run.call_args.args[1]
        self.assertIs(self.open_guest.return_value, hands.guest)
        self.assertIs(self.operate, hands.operate)
        self.assertEqual(self.reports.keep, hands.keep)
        self.operate.assert_not_called()
        hands.collect()
        self.agents.incoming.assert_called_once_with(
            'context', 'there', UUID, MIGRATION)

    def test_libvirt_is_waited_for(self):
        wait = self.replace(waiting, 'await_libvirt')
        wait.side_effect = lambda open_guest: (
            self.open_guest.assert_not_called(), open_guest())
        self.migrate()
        wait.assert_called_once()
        self.driver._host.get_guest.assert_called_once_with(self.instance)

    def test_it_is_settled_when_there_is_an_answer(self):
        recover = mock.Mock(
            spec=[], side_effect=oslo_messaging.MessagingTimeout('late'))
        seen = []
        run = self.replace(recovery.Recovery, 'run', side_effect=(
            lambda _self, entry, status: seen.append(
                (entry.migration_uuid, status,
                 self.service.attempt_of(self.instance)))))
        with self.service.attempt(self.instance, 'there', True,
                                  self.data) as attempt:
            attempt.recovering(recover)('c', migration_status='cancelled')
            run.assert_not_called()
        self.assertEqual([(MIGRATION, 'cancelled', None)], seen)
        # Recovery removes it when it has succeeded.
        self.assertEqual(1, len(self.service._journal.entries()[0]))

    def test_an_exception_leaves_nothing_in_the_journal(self):
        def fail():
            with self.service.attempt(self.instance, 'there', True,
                                      self.data):
                raise KeyError()

        self.assertRaises(KeyError, fail)
        self.assertEqual([], self.service._journal.entries()[0])

    def test_it_is_in_the_journal_meanwhile(self):
        with self.service.attempt(self.instance, 'there', True, self.data):
            (entry,), _damaged = self.service._journal.entries()
            self.assertEqual(
                (MIGRATION, UUID, 'there', True),
                (entry.migration_uuid, entry.instance_uuid,
                 entry.destination, entry.block_migration))
        self.assertEqual([], self.service._journal.entries()[0])

    def test_the_journal_cannot_be_written(self):
        with mock.patch.object(service.journal.Journal, '_write',
                               autospec=True, side_effect=OSError('full')):
            record = self.migrate()
        self.assertIn('full', record.warnings[0])
        self.run.assert_called_once_with(record, mock.ANY)

    def test_refused(self):
        refuse = self.replace(stranded, 'refuse', return_value=True)
        waiting = self.replace(stranded, 'Stranded').return_value
        self.assertTrue(self.service.refuses(
            'context', self.instance, 'there', 'recover', self.data))
        refuse.assert_called_once_with('context', self.instance, 'there',
                                       'recover', self.data)
        waiting.arrived.assert_called_once_with(UUID)

    def test_the_destination_is_asked(self):
        self.agents.guest_state.return_value = 'none'
        with self.service.attempt(self.instance, 'there', False,
                                  self.data) as attempt:
            self.assertEqual('none', attempt._state_there('context'))
        self.agents.guest_state.assert_called_once_with('context', 'there',
                                                        UUID)

    def test_the_destination_is_to_forget(self):
        for error in (None, errors.AgentUnavailable('there', 'gone'),
                      ValueError('bad URL')):
            self.agents.forget_guest.side_effect = error
            with self.service.attempt(self.instance, 'there', False,
                                      self.data) as attempt:
                attempt._forget_there('context')
            self.agents.forget_guest.assert_called_with('context', 'there',
                                                        UUID)

    def test_disabled(self):
        self.set(enabled=False)
        self.migrate()
        self.operate.assert_called_once_with()
        self.run.assert_not_called()

    def check_operated_alone(self):
        record = self.migrate()
        self.operate.assert_called_once_with()
        self.run.assert_not_called()
        self.assertEqual(1, len(record.warnings))

    def test_domain_has_vanished(self):
        self.open_guest.side_effect = LookupError(UUID)
        self.check_operated_alone()

    def test_bus_cannot_be_used(self):
        transport.get_transport.side_effect = ValueError('bad URL')
        self.check_operated_alone()

    def test_exception_passes(self):
        self.run.side_effect = exception.MigrationError(reason='x')
        self.assertRaises(exception.MigrationError, self.migrate)
        self.assertIsNone(self.service.attempt_of(self.instance))
