# SPDX-License-Identifier: Apache-2.0
import functools
from unittest import mock

from nova import exception
from nova import objects
from nova.compute import manager as compute_manager
from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova.compute import vm_states
from nova.network import neutron
from nova.scheduler.client import report
from nova.virt.libvirt import driver as libvirt_driver
from nova.volume import cinder

from nova_dedup_migrate.compute import manager
from nova_dedup_migrate.compute import migrate_data
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import fakes

VOLUME = '44444444-0000-4000-8000-000000000004'


class ManagerPortCase(base.TestCase):

    def setUp(self):
        super().setUp()
        # Its signatures are recorded (test_signatures.py); an autospec of
        # all of it takes a second.
        self.nova = mock.Mock(spec=compute_manager.ComputeManager)
        self.nova.host = 'here'
        self.nova._waiting_live_migrations = {}
        self.nova.volume_api = mock.create_autospec(cinder.API,
                                                    instance=True)
        self.nova.network_api = mock.create_autospec(neutron.API,
                                                     instance=True)
        self.nova.reportclient = mock.create_autospec(
            report.SchedulerReportClient, instance=True)
        driver = mock.Mock(spec=libvirt_driver.LibvirtDriver)
        driver.virtapi = mock.Mock(_compute=self.nova)
        self.port = manager.ManagerPort(driver)
        self.driver = driver
        self.instance = objects.Instance(
            uuid=fakes.UUID, host='here', vm_state=vm_states.ACTIVE,
            task_state=task_states.MIGRATING)
        self.patch(objects.Instance, 'get_by_uuid',
                   side_effect=lambda *args, **kwargs: self.instance)
        self.saved = self.patch(objects.Instance, 'save')
        self.migration = objects.Migration(
            id=7, uuid=fakes.MIGRATION, status='running',
            migration_type='live-migration', dest_compute='there')
        self.migrations = self.patch(
            objects.MigrationList, 'get_by_filters',
            return_value=[self.migration])
        self.migration_saved = self.patch(objects.Migration, 'save')
        self.bdm = objects.BlockDeviceMapping(
            destination_type='volume', volume_id=VOLUME,
            attachment_id='new', connection_info='{}')
        self.patch(objects.BlockDeviceMappingList, 'get_by_instance_uuid',
                   side_effect=lambda *args: [self.bdm])
        data = objects.LibvirtLiveMigrateData(
            block_migration=True, is_shared_instance_path=False,
            is_shared_block_storage=False)
        self.operation = fakes.operation(data=migrate_data.encode(
            data, True, {VOLUME: 'old'}))

    def patch(self, owner, name, **kwargs):
        patch = mock.patch.object(owner, name, autospec=True, **kwargs)
        self.addCleanup(patch.stop)
        return patch.start()


class SettlingTest(ManagerPortCase):

    def attached(self):
        self.nova.volume_api.attachment_get.return_value = {
            'connection_info': {'driver_volume_type': 'nfs'}}

    def test_finish(self):
        self.attached()
        self.port.finish(self.operation)
        self.nova._post_live_migration.assert_called_once_with(
            mock.ANY, self.instance, 'there', True, mock.ANY, mock.ANY)
        self.assertEqual([self.bdm], list(
            self.nova._post_live_migration.call_args.args[5]))
        data = self.nova._post_live_migration.call_args.args[4]
        self.assertIs(self.migration, data.migration)

    def test_volumes_are_those_of_the_source(self):
        self.attached()
        self.port.finish(self.operation)
        self.nova.volume_api.attachment_get.assert_called_once_with(
            mock.ANY, 'old')
        self.assertEqual('old', self.bdm.attachment_id)
        self.assertIn('nfs', self.bdm.connection_info)
        self.assertIn(VOLUME, self.bdm.connection_info)

    def test_volumes_that_are_the_sources_already(self):
        self.bdm.attachment_id = 'old'
        self.port.finish(self.operation)
        self.nova.volume_api.attachment_get.assert_not_called()

    def gone(self):
        self.nova.volume_api.attachment_get.side_effect = (
            exception.VolumeAttachmentNotFound(attachment_id='old'))

    def test_finish_volumes_whose_attachment_an_attempt_has_deleted(self):
        self.gone()
        self.port.finish(self.operation)
        self.nova._post_live_migration.assert_called_once_with(
            mock.ANY, self.instance, 'there', True, mock.ANY, mock.ANY)
        bdms = self.nova._post_live_migration.call_args.args[5]
        self.assertEqual([], list(bdms))

    def test_roll_back_needs_all_volumes(self):
        self.gone()
        self.assertRaises(exception.VolumeAttachmentNotFound,
                          self.port.roll_back, self.operation, 'failed')
        self.nova._rollback_live_migration.assert_not_called()

    def test_roll_back_after_the_claim_was_dropped(self):
        """The answer of an earlier attempt was lost."""
        self.attached()
        seen = []

        def roll_back(context, instance, dest, data, *args, **kwargs):
            seen.append('src_supports_numa_live_migration' in data
                        and data.src_supports_numa_live_migration)
            if len(seen) == 1:
                raise exception.CPUUnpinningInvalid(requested=[], available=[])

        self.nova._rollback_live_migration.side_effect = roll_back
        self.port.roll_back(self.operation, 'failed')
        self.assertEqual(2, len(seen))
        self.assertFalse(seen[1])

    def test_finish_for_the_last_time(self):
        self.attached()
        self.port.finish(self.operation, last=True)
        self.nova._post_live_migration.assert_not_called()
        self.nova._post_live_migration_update_host.assert_called_once()

    def test_roll_back(self):
        self.attached()
        self.port.roll_back(self.operation, 'failed')
        self.nova._rollback_live_migration.assert_called_once_with(
            mock.ANY, self.instance, 'there', mock.ANY, 'failed',
            mock.ANY, pre_live_migration=False)
        self.assertEqual([self.bdm], list(
            self.nova._rollback_live_migration.call_args.args[5]))

    def test_roll_back_before_anything_was_prepared(self):
        self.attached()
        for status, before, then in (
                ('accepted', True, 'failed'), ('queued', True, 'failed'),
                ('cancelled', True, 'cancelled'),
                ('preparing', False, 'failed'), ('error', False, 'failed')):
            self.migration.status = status
            self.port.roll_back(self.operation, 'failed')
            call = self.nova._rollback_live_migration.call_args
            self.assertIs(before, call.kwargs['pre_live_migration'])
            self.assertEqual(then, call.args[4])

    def test_deleted_meanwhile(self):
        self.patch(manager.ManagerPort, 'instance', return_value=None)
        self.assertRaises(exception.InstanceNotFound, self.port.finish,
                          self.operation)
        self.port.close(self.operation)
        self.port.fail(self.operation, 'reason', True)

    def test_close_on_the_destination(self):
        self.instance.host = 'there'
        self.port.close(self.operation)
        self.nova.network_api.setup_networks_on_host.assert_called_once_with(
            mock.ANY, self.instance, host='here', teardown=True)
        self.nova.update_available_resource.assert_called_once()
        self.assertEqual('completed', self.migration.status)
        self.nova._delete_allocation_after_move.assert_called_once_with(
            mock.ANY, self.instance, self.migration)

    def test_close_leaves_an_error_as_it_is(self):
        self.instance.host = 'there'
        self.migration.status = 'error'
        self.port.close(self.operation)
        self.assertEqual('error', self.migration.status)
        self.nova._delete_allocation_after_move.assert_called_once()

    def test_close_in_post_copy(self):
        self.instance.host = 'there'
        self.migration.status = 'running (post-copy)'
        self.port.close(self.operation)
        self.assertEqual('completed', self.migration.status)

    def test_close_on_the_source(self):
        self.port.close(self.operation)
        self.assertEqual('failed', self.migration.status)
        self.nova._delete_allocation_after_move.assert_not_called()

    def test_forget(self):
        """Nova has deleted the migration with its instance."""
        self.migrations.return_value = []
        self.port.forget(self.operation)
        delete = self.nova.reportclient.delete_allocation_for_instance
        delete.assert_called_once_with(
            mock.ANY, fakes.MIGRATION, consumer_type='migration', force=True)

    def test_fail(self):
        fault = self.patch(compute_utils, 'add_instance_fault_from_exc')
        self.port.fail(self.operation, 'the reason', known=True)
        self.assertIn('the reason', str(fault.call_args.args[2]))
        self.assertEqual((vm_states.ERROR, None), (
            self.instance.vm_state, self.instance.task_state))
        self.assertEqual('error', self.migration.status)

    def test_fail_without_knowing_where_the_guest_is(self):
        """Its task state keeps everybody from starting it."""
        self.patch(compute_utils, 'add_instance_fault_from_exc')
        self.port.fail(self.operation, 'the reason', known=False)
        self.assertEqual((vm_states.ERROR, task_states.MIGRATING), (
            self.instance.vm_state, self.instance.task_state))

    def test_restore(self):
        self.patch(compute_utils, 'add_instance_fault_from_exc')
        self.port.restore(self.operation)
        self.saved.assert_not_called()
        self.port.fail(self.operation, 'the reason', known=False)
        self.port.restore(self.operation)
        self.assertEqual(vm_states.ACTIVE, self.instance.vm_state)

    def test_an_error_of_steps_that_failed_stays(self):
        self.patch(compute_utils, 'add_instance_fault_from_exc')
        self.port.fail(self.operation, 'the reason', known=True)
        self.port.restore(self.operation)
        self.assertEqual(vm_states.ERROR, self.instance.vm_state)


class ReadingTest(ManagerPortCase):

    def test_queued(self):
        self.assertFalse(self.port.queued(fakes.UUID))
        future = mock.Mock(spec=['done'])
        for waiting, expected in (((None, None), True),
                                  (('migration', future), True)):
            future.done.return_value = False
            self.nova._waiting_live_migrations[fakes.UUID] = waiting
            self.assertIs(expected, self.port.queued(fakes.UUID))
        future.done.return_value = True
        self.assertFalse(self.port.queued(fakes.UUID))

    def test_newest_migration(self):
        newer = objects.Migration(id=8, uuid=VOLUME,
                                  migration_type='live-migration')
        cold = objects.Migration(id=9, uuid=fakes.UUID,
                                 migration_type='migration')
        self.migrations.return_value = [newer, cold, self.migration]
        self.assertEqual((self.migration, VOLUME), self.port.migration(
            fakes.MIGRATION, fakes.UUID))

    def test_requested(self):
        self.assertIs(self.migration,
                      self.port.requested(fakes.UUID, 'here'))
        filters = self.migrations.call_args.args[1]
        self.assertEqual('here', filters['source_compute'])
        self.assertIn('running (post-copy)', filters['status'])
        self.migrations.return_value = []
        self.assertIsNone(self.port.requested(fakes.UUID, 'here'))

    def test_libvirt_uri(self):
        self.port.libvirt_uri('there', self.operation.durable)
        self.driver._live_migration_uri.assert_called_once_with('there')


class BeginningTest(ManagerPortCase):

    def test_post_method_without_its_last_resort(self):
        def _post_live_migration_update_host():
            self.fail('not to be called')

        ours = self.port.post_method(functools.partial(
            _post_live_migration_update_host, source_bdms='bdms'))
        ours('context', 'instance', 'there')
        self.nova._post_live_migration.assert_called_once_with(
            'context', 'instance', 'there', source_bdms='bdms')

    def test_another_post_method(self):
        method = mock.Mock(spec=[])
        self.assertIs(method, self.port.post_method(method))

    def test_reclaim(self):
        self.port.reclaim('context', self.instance)
        self.saved.assert_not_called()
        now = objects.Instance(uuid=fakes.UUID, host='here', task_state=None)
        given, self.instance = self.instance, now
        self.port.reclaim('context', given)
        self.assertEqual(task_states.MIGRATING, now.task_state)
        self.saved.assert_called_once_with(now, expected_task_state=[None])
        now.host = 'third'
        self.assertRaises(exception.MigrationError, self.port.reclaim,
                          'context', given)
