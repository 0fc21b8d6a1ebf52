# SPDX-License-Identifier: Apache-2.0
"""What is called of Nova's compute manager and database, in one object.

Everything here is Nova's private API, for settling a migration that Nova's
own thread did not bring to its end.  The steps are Nova's own.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import sys
import typing

from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova.compute import vm_states
from nova.objects import fields
from oslo_log import log as logging
from oslo_serialization import jsonutils

from nova_dedup_migrate.compute import migrate_data
from nova_dedup_migrate.operations import operation as operations

LOG = logging.getLogger(__name__)

#: What Nova's last steps read of an instance.
_ATTRIBUTES = ['info_cache', 'metadata', 'system_metadata', 'numa_topology',
               'flavor', 'migration_context', 'pci_devices', 'pci_requests',
               'resources']
#: Statuses of a migration that Nova has not finished with.
OPEN = ('accepted', 'queued', 'preparing', 'running', 'running (post-copy)')
#: Those before the destination has prepared anything.  A migration that is
#: cancelled while the instance migrates was cancelled in Nova's queue.
_UNPREPARED = ('accepted', 'queued', 'cancelled')


class ManagerPort:
    """Nova's compute manager of this host.

    :param driver: the DedupMigrateLibvirtDriver
    """

    def __init__(self, driver: typing.Any) -> None:
        self._driver = driver

    @property
    def _manager(self) -> typing.Any:
        return self._driver.virtapi._compute

    @property
    def host(self) -> str:
        """Name of this host."""
        return self._manager.host

    # Reading

    @staticmethod
    def context() -> nova_context.RequestContext:
        """Return a context with all rights."""
        return nova_context.get_admin_context()

    @staticmethod
    def named(uuid: str) -> objects.Instance:
        """Return an Instance that is good for naming its guest alone."""
        return objects.Instance(uuid=uuid)

    def instance(self, uuid: str) -> objects.Instance | None:
        """Return an instance as the database has it, None if deleted."""
        try:
            return objects.Instance.get_by_uuid(self.context(), uuid,
                                                expected_attrs=_ATTRIBUTES)
        except exception.InstanceNotFound:
            return None

    def migration(self, migration_uuid: str, instance_uuid: str) -> tuple[
            objects.Migration | None, str | None]:
        """Return a migration, and the UUID of the instance's newest one."""
        found = [one for one in objects.MigrationList.get_by_filters(
            self.context(), {'instance_uuid': instance_uuid})
            if one.migration_type == fields.MigrationType.LIVE_MIGRATION]
        newest = max(found, key=lambda one: one.id, default=None)
        mine = next((one for one in found if one.uuid == migration_uuid),
                    None)
        return mine, newest.uuid if newest is not None else None

    def requested(self, instance_uuid: str,
                  host: str) -> objects.Migration | None:
        """Return the open live migration of an instance from a host."""
        return max(
            (one for one in objects.MigrationList.get_by_filters(
                self.context(), {
                    'instance_uuid': instance_uuid, 'source_compute': host,
                    'status': list(OPEN)})
             if one.migration_type == fields.MigrationType.LIVE_MIGRATION),
            key=lambda one: one.id, default=None)

    @staticmethod
    def destination(durable: operations.Durable,
                    migration: objects.Migration | None) -> str:
        """Return the destination; Nova chooses it late."""
        if not durable.destination and migration is not None:
            durable.destination = migration.dest_compute or ''
        return durable.destination

    def libvirt_uri(self, host: str, durable: operations.Durable) -> str:
        """Return the URI of the destination's libvirt."""
        return self._driver._live_migration_uri(
            migrate_data.address(durable.data) or host)

    def queued(self, instance_uuid: str) -> bool:
        """Whether Nova's queue of live migrations has an instance."""
        waits = self._manager._waiting_live_migrations.get(instance_uuid)
        if waits is None:
            return False
        # A future that has ended stays there if the destination could not
        # prepare itself.
        _migration, future = waits
        return future is None or not future.done()

    @staticmethod
    def volumes(context: nova_context.RequestContext,
                instance: objects.Instance) -> dict[str, str]:
        """Return {volume: its attachment now} of an instance."""
        return {bdm.volume_id: bdm.attachment_id or ''
                for bdm in
                objects.BlockDeviceMappingList.get_by_instance_uuid(
                    context, instance.uuid) if bdm.is_volume}

    # Beginning

    def post_method(self, method: Callable[..., None]
                    ) -> Callable[..., None]:
        """Return Nova's post_method without its last resort.

        If one of its steps fails, Nova's moves the instance to the
        destination, and the other steps are never done.  Recovery repeats
        them instead, as long as the instance is on the source.

        :param method: as LibvirtDriver.live_migration gets it
        """
        name = '_post_live_migration_update_host'
        if (isinstance(method, functools.partial)
                and getattr(method.func, '__name__', '') == name):
            return functools.partial(self._manager._post_live_migration,
                                     *method.args, **method.keywords)
        return method

    def reclaim(self, context: nova_context.RequestContext,
                instance: objects.Instance) -> None:
        """Set the task state that Nova's rollback wants to clear itself.

        :raises MigrationError: the instance is not the source's any more
        :raises UnexpectedTaskStateError: it has another task
        """
        now = objects.Instance.get_by_uuid(context, instance.uuid)
        if now.host != instance.host:
            raise exception.MigrationError(
                reason='instance %s is on host %s now'
                       % (instance.uuid, now.host))
        if now.task_state != task_states.MIGRATING:
            now.task_state = task_states.MIGRATING
            now.save(expected_task_state=[None])

    # Settling

    def finish(self, operation: operations.Operation,
               last: bool = False) -> None:
        """Do what Nova does when a guest has arrived, from the beginning.

        :param last: have Nova move the instance to the destination even if
            a step fails
        :raises: what Nova's step does
        """
        # A volume whose attachment is gone was disconnected before that.
        context, instance, data, bdms = self._given(operation,
                                                    detached=True)
        method = (self._manager._post_live_migration_update_host if last
                  else self._manager._post_live_migration)
        method(context, instance, operation.destination,
               migrate_data.is_block_migration(operation.durable.data),
               data, bdms)

    def roll_back(self, operation: operations.Operation,
                  status: str) -> None:
        """Do what Nova does when a guest has stayed, from the beginning.

        :param status: for the migration
        :raises: what Nova's step does
        """
        context, instance, data, bdms = self._given(operation)
        if data.migration.status == 'cancelled':
            status = data.migration.status
        roll_back = functools.partial(
            self._manager._rollback_live_migration, context, instance,
            operation.destination, data, status, bdms,
            pre_live_migration=data.migration.status in _UNPREPARED)
        try:
            roll_back()
        except exception.CPUUnpinningInvalid:
            # An earlier attempt has dropped the claim of the destination,
            # and its answer was lost.  All other steps can be repeated.
            data.src_supports_numa_live_migration = False
            roll_back()

    def has_moved(self, operation: operations.Operation) -> bool:
        """Whether the instance is the destination's."""
        instance = self.instance(operation.instance_uuid)
        return (instance is not None
                and instance.host == operation.destination)

    def close(self, operation: operations.Operation) -> None:
        """Do what is left when the instance is on its final host.

        On the destination: what Nova does after its destination has taken
        the instance over.  On the source: the status of the migration.

        :raises: what Nova's step does
        """
        context = self.context()
        instance = self.instance(operation.instance_uuid)
        migration, _newest = self.migration(operation.migration_uuid,
                                            operation.instance_uuid)
        if instance is None or migration is None:
            return
        if instance.host == operation.source:
            if migration.status in OPEN:
                migration.status = operation.outcome or 'failed'
                migration.save()
            return
        # Nova's destination removes them, and goes on if it cannot.
        self._manager.network_api.setup_networks_on_host(
            context, instance, host=operation.source, teardown=True)
        self._manager.update_available_resource(context)
        if migration.status in OPEN:
            migration.status = 'completed'
            migration.save()
        self._manager._delete_allocation_after_move(context, instance,
                                                    migration)

    def forget(self, operation: operations.Operation) -> None:
        """Remove what the migration of a deleted instance still holds."""
        # Nova has deleted the migration with its instance.
        self._manager.reportclient.delete_allocation_for_instance(
            self.context(), operation.migration_uuid,
            consumer_type='migration', force=True)

    def fail(self, operation: operations.Operation, reason: str,
             known: bool) -> None:
        """Set an instance to ERROR with a fault, as Nova does.

        :param reason: for the fault
        :param known: whether it is known where the guest is; if not, the
            task state stays, so that nobody starts the guest twice
        """
        context = self.context()
        instance = self.instance(operation.instance_uuid)
        if instance is None:
            return
        error = exception.MigrationError(reason=reason)
        try:
            raise error
        except exception.MigrationError:
            compute_utils.add_instance_fault_from_exc(
                context, instance, error, sys.exc_info())
        migration, _newest = self.migration(operation.migration_uuid,
                                            operation.instance_uuid)
        if migration is not None and migration.status in OPEN:
            migration.status = 'error'
            migration.save()
        if known:
            instance.task_state = None
        else:
            operation.durable.data.setdefault('vm_state', instance.vm_state)
        instance.vm_state = vm_states.ERROR
        instance.save(expected_task_state=[task_states.MIGRATING, None])

    def restore(self, operation: operations.Operation) -> None:
        """Take back the ERROR of fail(): the guest was found after all.

        An ERROR for steps that failed too often stays: something is left
        for an operator to remove.
        """
        state = operation.durable.data.pop('vm_state', None)
        instance = self.instance(operation.instance_uuid)
        if state and instance and instance.vm_state == vm_states.ERROR:
            instance.vm_state = state
            instance.save()

    def add_fault(self, operation: operations.Operation,
                  error: Exception) -> None:
        """Add an error to the faults of an instance; never raises."""
        try:
            compute_utils.add_instance_fault_from_exc(
                self.context(), self.named(operation.instance_uuid), error,
                (type(error), error, error.__traceback__))
        except Exception as failure:
            LOG.debug('The fault of instance %(uuid)s was not saved: '
                      '%(failure)s', {'uuid': operation.instance_uuid,
                                      'failure': failure})

    def _given(self, operation: operations.Operation,
               detached: bool = False) -> tuple[
            nova_context.RequestContext, objects.Instance,
            objects.LibvirtLiveMigrateData,
            objects.BlockDeviceMappingList]:
        """Return what Nova's last steps take.

        The block devices are those that were connected to the source.

        :param detached: leave out volumes without an attachment there
        """
        context = self.context()
        instance = self.instance(operation.instance_uuid)
        if instance is None:
            raise exception.InstanceNotFound(
                instance_id=operation.instance_uuid)
        migration, _newest = self.migration(operation.migration_uuid,
                                            operation.instance_uuid)
        data = migrate_data.decode(operation.durable.data)
        data.migration = migration
        bdms = objects.BlockDeviceMappingList.get_by_instance_uuid(
            context, instance.uuid)
        volumes = migrate_data.volumes(operation.durable.data)
        connected = []
        for bdm in bdms:
            try:
                self._connect(context, bdm, volumes)
            except exception.VolumeAttachmentNotFound:
                if not detached:
                    raise
                continue
            connected.append(bdm)
        return context, instance, data, objects.BlockDeviceMappingList(
            context, objects=connected)

    def _connect(self, context: nova_context.RequestContext,
                 bdm: objects.BlockDeviceMapping,
                 volumes: dict[str, str]) -> None:
        """Give a block device the attachment of the source again.

        Only Nova's rollback saves it.

        :param volumes: {volume: its attachment of the source}
        :raises VolumeAttachmentNotFound: Cinder has none
        """
        attachment = bdm.is_volume and volumes.get(bdm.volume_id)
        if not attachment or attachment == bdm.attachment_id:
            return
        info = self._manager.volume_api.attachment_get(
            context, attachment)['connection_info']
        info.setdefault('serial', bdm.volume_id)
        bdm.attachment_id = attachment
        bdm.connection_info = jsonutils.dumps(info)
