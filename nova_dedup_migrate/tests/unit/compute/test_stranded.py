# SPDX-License-Identifier: Apache-2.0
"""Requests that a nova-compute that ended had not begun."""

import threading
from unittest import mock

from nova import exception
from nova import objects
from nova.compute import manager as compute_manager
from nova.compute import task_states
from nova.network import neutron
import oslo_messaging

from nova_dedup_migrate.compute import prepared
from nova_dedup_migrate.compute import stranded
from nova_dedup_migrate.compute import waiting
from nova_dedup_migrate.tests import base

UUID = '22222222-0000-4000-8000-000000000002'
MIGRATION = '11111111-0000-4000-8000-000000000001'


class StrandedCase(base.TestCase):

    def setUp(self):
        super().setUp()
        objects.register_all()
        for name in ('_LOOK_S', 'WAIT_S', 'PREPARED_S'):
            self.patch(stranded, name, 0)
        self.instance = self.make_instance()
        self.migration = objects.Migration(
            id=7, uuid=MIGRATION, instance_uuid=UUID, status='preparing',
            dest_compute='there', migration_type='live-migration')
        self.replace(objects.Instance, 'get_by_uuid',
                     side_effect=lambda *args, **kwargs: self.instance)
        self.save = self.replace(objects.Instance, 'save')
        self.save_migration = self.replace(objects.Migration, 'save')
        self.manager = mock.create_autospec(
            compute_manager.ComputeManager, instance=True)
        self.manager.network_api = mock.create_autospec(neutron.API,
                                                        instance=True)

    def make_instance(self, task_state=task_states.MIGRATING, host='here'):
        return objects.Instance(uuid=UUID, host=host, task_state=task_state)

    def patch(self, owner, name, value):
        patcher = mock.patch.object(owner, name, value)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def replace(self, owner, name, **kwargs):
        patcher = mock.patch.object(owner, name, autospec=True, **kwargs)
        self.addCleanup(patcher.stop)
        return patcher.start()


class StartTest(StrandedCase):

    def setUp(self):
        super().setUp()
        self.roll_back = mock.Mock(spec=[])
        self.runs_here = mock.Mock(spec=[], return_value=True)
        self.stranded = stranded.Stranded('here', self.manager,
                                          self.roll_back, self.runs_here)
        self.entry = self.replace(prepared, 'entry',
                                  side_effect=prepared.NotKnown('no'))
        self.found = [self.migration]
        self.listed = self.replace(
            objects.MigrationList, 'get_by_filters',
            side_effect=lambda *args: self.found)

    def begin(self, *instances):
        """Begin, and wait until it is settled."""
        taken = self.stranded.begin('context',
                                    instances or [self.instance])
        for thread in threading.enumerate():
            if thread.name == 'dedup-stranded-%s' % UUID:
                thread.join(10)
        return taken

    def check_given_up(self):
        self.manager._revert_allocation.assert_called_once_with(
            mock.ANY, self.instance, self.migration)
        self.manager.network_api.setup_networks_on_host.assert_called_with(
            mock.ANY, self.instance, host='there', teardown=True)
        self.assertIsNone(self.instance.task_state)
        self.save.assert_called_once_with(
            self.instance, expected_task_state=[task_states.MIGRATING])
        self.assertEqual('error', self.migration.status)
        self.save_migration.assert_called_once_with(self.migration)

    def check_untouched(self):
        self.manager._revert_allocation.assert_not_called()
        self.save.assert_not_called()
        self.save_migration.assert_not_called()

    def lost(self, status):
        self.migration.status = status
        self.assertEqual({UUID}, self.begin())
        self.check_given_up()

    def test_lost_in_the_queue(self):
        self.lost('queued')

        self.entry.assert_not_called()

    def test_nobody_knows_what_was_prepared(self):
        self.lost('preparing')
        self.entry.assert_called_once_with(
            self.manager, mock.ANY, self.instance, self.migration)
        self.roll_back.assert_not_called()

    def test_the_destination_does_not_answer(self):
        self.entry.side_effect = exception.MigrationPreCheckError(reason='x')
        self.lost('preparing')

    def rolled_back(self, status):
        self.entry.side_effect = None
        self.migration.status = status
        self.assertEqual({UUID}, self.begin())
        self.roll_back.assert_called_once_with(self.entry.return_value)
        self.check_untouched()

    def test_lost_while_it_was_prepared(self):
        self.rolled_back('preparing')

    def test_lost_before_the_journal_was_written(self):
        self.rolled_back('running')

    def test_a_step_of_nova_failed(self):
        self.rolled_back('error')

    def test_it_may_have_left(self):
        """It would run twice if somebody could start it here."""
        for self.migration.status in ('running', 'error'):
            self.runs_here.return_value = False
            self.begin()
            self.check_untouched()
            self.runs_here.assert_called_once_with(self.instance)
            self.runs_here.return_value = True
            self.begin()
            self.check_given_up()
            for each in (self.runs_here, self.save, self.save_migration,
                         self.manager._revert_allocation):
                each.reset_mock()
            self.instance = self.make_instance()

    def test_the_next_nova_compute_is_stopped_as_well(self):
        self.stranded.stop()
        self.begin()
        self.entry.assert_not_called()
        self.check_untouched()

    def test_what_is_looked_for(self):
        self.begin()
        filters = self.listed.call_args.args[1]
        self.assertEqual((UUID, 'here'), (filters['instance_uuid'],
                                          filters['source_compute']))

    def test_nothing_is_wanted_of_it(self):
        self.instance.task_state = None
        self.assertEqual(set(), self.begin())
        self.listed.assert_not_called()

    def test_no_open_migration(self):
        self.found = []
        self.assertEqual(set(), self.begin())
        self.migration.migration_type = 'resize'
        self.found = [self.migration]
        self.assertEqual(set(), self.begin())

    def test_the_newest_counts(self):
        self.found.append(objects.Migration(
            id=6, uuid=UUID, instance_uuid=UUID, status='accepted',
            migration_type='live-migration'))
        self.begin()
        self.check_given_up()

    def accepted(self, *later):
        """It is accepted at first; and then?"""
        self.migration.status = 'accepted'
        statuses = iter(later)

        def look(*args):
            self.migration.status = next(statuses)
            return self.migration

        self.replace(objects.Migration, 'get_by_uuid', side_effect=look)
        self.assertEqual({UUID}, self.begin())

    def test_it_comes(self):
        self.patch(stranded, 'WAIT_S', 10)
        self.accepted('accepted', 'queued')
        self.check_untouched()

    def test_it_does_not_come(self):
        self.accepted('accepted', 'accepted')
        self.check_given_up()

    def test_it_comes_in_the_last_moment(self):
        self.manager._revert_allocation.side_effect = AssertionError
        self.stranded._waiting.add(UUID)
        self.stranded.arrived(UUID)
        self.stranded._give_up('context', self.migration)
        self.check_untouched()

    def test_nobody_waits_when_it_has_come(self):
        self.migration.status = 'accepted'
        self.assertFalse(self.stranded._is_lost(self.migration))

    def test_nova_has_settled_it(self):
        self.instance = self.make_instance(task_state=None)
        self.begin(self.make_instance())
        self.check_untouched()

    def test_it_has_gone(self):
        self.instance = self.make_instance(host='there')
        self.begin(self.make_instance())
        self.check_untouched()

    def test_ports_are_no_reason_to_leave_it(self):
        self.manager.network_api.setup_networks_on_host.side_effect = (
            exception.PortBindingDeletionFailed(port_id='p', host='there'))
        self.begin()
        self.check_given_up()

    def test_no_destination_yet(self):
        self.migration.dest_compute = None
        self.begin()
        self.manager.network_api.setup_networks_on_host.assert_not_called()
        self.assertEqual('error', self.migration.status)

    def test_the_bus_is_away(self):
        """Wherever it fails, all is done again."""
        self.patch(waiting, 'RETRY_S', 0)
        for step in (objects.Instance.get_by_uuid, self.save,
                     self.save_migration, self.manager._revert_allocation):
            self.instance = self.make_instance()
            self.migration.status = 'queued'
            answer = step.side_effect
            step.side_effect = self.failing_once(answer)
            step.reset_mock()
            self.begin()
            self.assertGreaterEqual(step.call_count, 2)
            step.side_effect = answer
            self.assertIsNone(self.instance.task_state)
            self.assertEqual('error', self.migration.status)
            self.assertFalse(self.stranded.has(UUID))

    def failing_once(self, answer):
        """Raise once, and have lost what was not saved; then answer."""
        errors = [oslo_messaging.MessagingTimeout('late')]

        def step(*args, **kwargs):
            if errors:
                self.instance = self.make_instance()
                raise errors.pop()
            return answer(*args, **kwargs) if answer else None

        return step

    def test_overdue(self):
        """It was waited for already."""
        self.patch(stranded, 'PREPARED_S', 1000)
        self.patch(stranded, 'WAIT_S', 1000)
        self.assertEqual(self.migration,
                         self.stranded.newest('context', UUID))
        for status in ('accepted', 'error'):
            self.migration.status = status
            self.instance = self.make_instance()
            self.stranded.settle(self.migration)
            self.eventually(lambda: not self.stranded.has(UUID),
                            'it is settled')
            self.assertIsNone(self.instance.task_state)
            self.assertEqual('error', self.migration.status)

    def test_it_never_raises(self):
        self.manager._revert_allocation.side_effect = OSError('gone')
        self.begin()


class RefuseTest(StrandedCase):

    def setUp(self):
        super().setUp()
        self.data = objects.LibvirtLiveMigrateData(migration=self.migration)
        self.recover = mock.Mock(spec=[])

    def refused(self):
        # as it was when the request was sent
        self.asked = self.make_instance()
        return stranded.refuse('context', self.asked, 'there', self.recover,
                               self.data)

    def check_rolled_back(self):
        self.recover.assert_called_once_with(
            'context', self.asked, 'there', self.data,
            migration_status='cancelled')

    def test_wanted(self):
        self.assertFalse(self.refused())
        self.recover.assert_not_called()
        self.save.assert_not_called()

    def test_nova_has_cleared_the_task_state(self):
        self.instance = self.make_instance(task_state=None)
        self.assertTrue(self.refused())
        self.save.assert_called_once_with(self.instance,
                                          expected_task_state=[None])
        self.assertEqual(task_states.MIGRATING, self.instance.task_state)
        self.check_rolled_back()
        self.save_migration.assert_not_called()

    def test_something_else_is_done_with_it(self):
        self.instance = self.make_instance(
            task_state=task_states.POWERING_OFF)
        self.recover.side_effect = exception.UnexpectedTaskStateError(
            instance_uuid=UUID, expected='x', actual='y')
        self.assertTrue(self.refused())
        self.check_rolled_back()
        self.save.assert_not_called()
        self.assertEqual('cancelled', self.migration.status)
        self.save_migration.assert_called_once_with(self.migration)

    def test_somebody_is_faster(self):
        self.instance = self.make_instance(task_state=None)
        error = exception.UnexpectedTaskStateError(
            instance_uuid=UUID, expected='x', actual='y')
        self.save.side_effect = self.recover.side_effect = error
        self.assertTrue(self.refused())
        self.check_rolled_back()
        self.assertEqual('cancelled', self.migration.status)

    def test_the_instance_is_elsewhere(self):
        self.instance = self.make_instance(host='there', task_state=None)
        self.assertTrue(self.refused())
        self.recover.assert_not_called()
        self.save.assert_not_called()
        self.assertEqual('error', self.migration.status)

    def test_nobody_knows(self):
        objects.Instance.get_by_uuid.side_effect = OSError('gone')
        self.assertFalse(self.refused())
        self.recover.assert_not_called()
