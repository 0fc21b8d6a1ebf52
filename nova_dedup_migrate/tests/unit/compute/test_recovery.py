# SPDX-License-Identifier: Apache-2.0
"""Where the guest is decides, whatever else is known."""

from unittest import mock

import libvirt
from nova import exception
from nova import objects
from nova.compute import manager as compute_manager
from nova.compute import task_states
from nova.virt.libvirt import guest as libvirt_guest
from nova.volume import cinder
import oslo_messaging

from nova_dedup_migrate.compute import journal
from nova_dedup_migrate.compute import peer
from nova_dedup_migrate.compute import recovery
from nova_dedup_migrate.compute import waiting
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import test_journal
from nova_dedup_migrate.tests.unit.compute.test_attempt import libvirt_error

UUID = test_journal.INSTANCE
RUNNING = [libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED]
LEAVING = [libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]
JOB, NO_JOB = (libvirt_guest.JobInfo(type=kind) for kind in (
    libvirt.VIR_DOMAIN_JOB_UNBOUNDED, libvirt.VIR_DOMAIN_JOB_NONE))


class RecoveryCase(base.TestCase):

    def setUp(self):
        super().setUp()
        objects.register_all()
        self.patch(mock.patch.object(recovery, '_LOOK_S', 0))
        self.patch(mock.patch.object(waiting, 'RETRY_S', 0))
        self.instance = objects.Instance(
            uuid=UUID, host='here', task_state=task_states.MIGRATING)
        self.patch(mock.patch.object(
            objects.Instance, 'get_by_uuid', autospec=True,
            side_effect=lambda *args, **kwargs: self.instance))
        self.migration = objects.Migration(uuid=test_journal.MIGRATION,
                                           status='running')
        self.save = self.patch(mock.patch.object(
            objects.Migration, 'save', autospec=True))
        self.patch(mock.patch.object(
            objects.Migration, 'get_by_uuid', autospec=True,
            return_value=self.migration))
        self.bdms = self.patch(mock.patch.object(
            objects.BlockDeviceMappingList, 'get_by_instance_uuid',
            autospec=True, return_value=[]))
        self.guest = mock.create_autospec(libvirt_guest.Guest, instance=True)
        self.guest._domain = mock.create_autospec(libvirt.virDomain,
                                                  instance=True)
        self.get_guest = mock.Mock(spec=[], return_value=self.guest)
        self.state_at = mock.Mock(spec=[])
        self.forget_at = mock.Mock(spec=[])
        self.manager = mock.create_autospec(
            compute_manager.ComputeManager, instance=True)
        self.manager.volume_api = mock.create_autospec(cinder.API,
                                                       instance=True)
        self.manager.driver = mock.Mock(spec=['_live_migration_uri'])
        self.peer = self.patch(mock.patch.object(
            peer, 'guest_state', autospec=True, return_value=None))
        self.journal = mock.create_autospec(journal.Journal, instance=True)
        self.recovery = recovery.Recovery(
            'here', self.get_guest, self.state_at, self.forget_at,
            self.manager, self.journal)
        self.entry = test_journal.entry()

    def patch(self, patcher):
        self.addCleanup(patcher.stop)
        return patcher.start()


class RecoveryTest(RecoveryCase):

    def is_here(self, jobs=(NO_JOB,), state=RUNNING):
        self.guest.is_active.return_value = True
        self.guest.get_job_info.side_effect = list(jobs)
        self.guest._domain.state.return_value = state

    def is_gone(self):
        self.get_guest.side_effect = exception.InstanceNotFound(
            instance_id=UUID)

    def settled(self):
        """Return what Nova was asked for: finish, roll back or None."""
        self.recovery.run(self.entry)
        finish = self.manager._post_live_migration_update_host
        roll_back = self.manager._rollback_live_migration
        data = self.entry.migrate_data
        if finish.called:
            finish.assert_called_once_with(
                mock.ANY, self.instance, 'there', True, data, mock.ANY)
            roll_back.assert_not_called()
        if roll_back.called:
            roll_back.assert_called_once_with(
                mock.ANY, self.instance, 'there', data, 'failed', mock.ANY)
            self.forget_at.assert_called_once_with('there', UUID, mock.ANY)
        else:
            self.forget_at.assert_not_called()
        for what, method in (('finish', finish), ('roll back', roll_back)):
            if method.called:
                self.assertIs(self.migration, data.migration)
                return what
        return None

    def forgotten(self):
        self.journal.forget.assert_called_once_with(self.entry)

    def test_it_has_arrived(self):
        self.is_gone()
        self.state_at.return_value = 'here'
        self.assertEqual('finish', self.settled())
        self.state_at.assert_called_once_with('there', UUID, mock.ANY)
        self.forgotten()

    def test_it_is_here(self):
        self.is_here()
        self.assertEqual('roll back', self.settled())
        self.guest.abort_job.assert_not_called()
        self.state_at.assert_not_called()
        self.forgotten()

    def test_it_is_leaving_and_is_held_back(self):
        self.is_here([JOB, JOB, NO_JOB])
        self.assertEqual('roll back', self.settled())
        self.assertEqual(2, self.guest.abort_job.call_count)

    def test_it_is_leaving_and_cannot_be_held_back(self):
        self.is_here([JOB])
        self.guest.abort_job.side_effect = libvirt_error(
            libvirt.VIR_ERR_OPERATION_INVALID)
        self.state_at.side_effect = ['arriving', 'here']
        self.guest.is_active.side_effect = [True, False]
        self.assertEqual('finish', self.settled())

    def test_it_is_nowhere(self):
        self.guest.is_active.return_value = False
        self.state_at.return_value = 'none'
        self.assertEqual('roll back', self.settled())

    def test_two_that_wait_for_each_other(self):
        """The destination decides, as for libvirt."""
        self.is_here([NO_JOB], LEAVING)
        self.state_at.return_value = 'here'
        self.assertEqual('finish', self.settled())

    def test_the_one_here_waits_for_nobody(self):
        self.is_here([NO_JOB], LEAVING)
        self.state_at.return_value = 'none'
        self.assertEqual('roll back', self.settled())

    def test_nobody_says_at_first(self):
        self.is_gone()
        self.state_at.side_effect = [
            errors.AgentUnavailable('there', 'no answer'), 'arriving',
            'here']
        self.assertEqual('finish', self.settled())

    def only_libvirt_there_says(self, address):
        self.is_gone()
        self.state_at.side_effect = errors.AgentUnavailable('there', 'none')
        self.peer.return_value = 'here'
        self.assertEqual('finish', self.settled())
        uri = self.manager.driver._live_migration_uri
        uri.assert_called_once_with(address)
        self.peer.assert_called_once_with(uri.return_value, UUID)

    def test_only_libvirt_there_says(self):
        self.only_libvirt_there_says('there')

    def test_libvirt_there_has_another_address(self):
        self.entry = test_journal.entry(target_connect_addr='198.18.0.2')
        self.only_libvirt_there_says('198.18.0.2')

    def test_libvirt_is_away_at_first(self):
        self.is_here()
        self.get_guest.side_effect = [
            exception.HypervisorUnavailable(),
            exception.InternalError('libvirt'), self.guest]
        self.assertEqual('roll back', self.settled())

    def test_it_is_not_settled_when_we_are_stopped(self):
        self.is_gone()

        def stop(*args):
            self.recovery.stop()
            raise errors.AgentUnavailable('there', 'no answer')

        self.state_at.side_effect = stop
        self.assertIsNone(self.settled())
        self.journal.forget.assert_not_called()

    def test_the_destination_had_taken_over(self):
        self.instance.host = 'there'
        self.assertIsNone(self.settled())
        self.assertEqual('completed', self.migration.status)
        self.save.assert_called_once_with(self.migration)
        self.manager._delete_allocation_after_move.assert_called_once_with(
            mock.ANY, self.instance, self.migration)
        self.forgotten()

    def test_somebody_else_has_settled_it(self):
        self.instance.task_state = None
        self.migration.status = 'error'
        self.assertIsNone(self.settled())
        self.assertEqual('error', self.migration.status)
        self.forgotten()

    def test_all_but_the_status(self):
        self.instance.task_state = None
        self.recovery.run(self.entry, 'cancelled')
        self.manager._rollback_live_migration.assert_not_called()
        self.assertEqual('cancelled', self.migration.status)
        self.save.assert_called_once_with(self.migration)
        self.forgotten()

    def test_cancelled(self):
        self.is_here()
        self.recovery.run(self.entry, 'cancelled')
        self.manager._rollback_live_migration.assert_called_once_with(
            mock.ANY, self.instance, 'there', self.entry.migrate_data,
            'cancelled', mock.ANY)

    def test_the_bus_is_away(self):
        """Wherever it fails, it is begun again."""
        late = oslo_messaging.MessagingTimeout('late')
        steps = [objects.Instance.get_by_uuid, objects.Migration.get_by_uuid,
                 self.bdms, self.manager._rollback_live_migration]
        for step in steps:
            self.is_here([NO_JOB] * 2)
            answer = step.side_effect or step.return_value
            step.side_effect = [
                late, self.instance if step is steps[0] else answer,
                self.instance]
            self.manager._rollback_live_migration.reset_mock(
                side_effect=step is not steps[-1])
            self.recovery.run(self.entry)
            self.assertEqual(
                2 if step is steps[-1] else 1,
                self.manager._rollback_live_migration.call_count)
            self.forgotten()
            self.journal.forget.reset_mock()
            step.side_effect = None
            step.return_value = (self.instance if step is steps[0]
                                 else answer)

    def test_the_bus_is_away_when_we_are_stopped(self):
        objects.Instance.get_by_uuid.side_effect = lambda *args, **kwargs: (
            self.recovery.stop(), self.fail_late())
        self.assertIsNone(self.settled())
        self.journal.forget.assert_not_called()

    def fail_late(self):
        raise oslo_messaging.MessagingTimeout('late')

    def test_the_instance_is_deleted(self):
        objects.Instance.get_by_uuid.side_effect = (
            exception.InstanceNotFound(instance_id=UUID))
        self.assertIsNone(self.settled())
        self.forgotten()

    def test_nova_cannot(self):
        """It is kept for the next start."""
        self.is_here()
        self.manager._rollback_live_migration.side_effect = (
            exception.NovaException('no'))
        self.recovery.run(self.entry)
        self.journal.forget.assert_not_called()

    def test_volumes_as_they_were_connected_here(self):
        bdm = mock.create_autospec(objects.BlockDeviceMapping, instance=True)
        bdm.configure_mock(is_volume=True, volume_id='v',
                           attachment_id='new', connection_info='{}')
        self.bdms.return_value = [bdm]
        self.entry = test_journal.entry(old_vol_attachment_ids={'v': 'old'})
        self.manager.volume_api.attachment_get.return_value = {
            'connection_info': {'data': {'path': 'here'}}}
        self.is_here()
        self.assertEqual('roll back', self.settled())
        self.manager.volume_api.attachment_get.assert_called_once_with(
            mock.ANY, 'old')
        self.assertEqual('old', bdm.attachment_id)
        self.assertEqual('{"data": {"path": "here"}, "serial": "v"}',
                         bdm.connection_info)
        bdm.save.assert_not_called()


class BeginTest(RecoveryCase):

    def setUp(self):
        super().setUp()
        self.ran = self.patch(mock.patch.object(
            recovery.Recovery, 'run', autospec=True))
        self.journal.entries.return_value = (
            [self.entry], [journal.EntryDamaged('no')])

    def begin(self):
        taken = self.recovery.begin([self.instance])
        self.eventually(lambda: self.ran.called, 'it runs')
        self.ran.assert_called_once_with(self.recovery, self.entry)
        return taken

    def test_migrating(self):
        self.assertEqual({UUID}, self.begin())

    def test_not_migrating(self):
        self.instance.task_state = None
        self.assertEqual(set(), self.begin())

    def test_not_here(self):
        self.instance.uuid = test_journal.MIGRATION
        self.assertEqual(set(), self.begin())
