# SPDX-License-Identifier: Apache-2.0
"""Finishing what a nova-compute has begun that was killed, or heard nothing.

libvirt goes on with a migration when nova-compute is gone, and the guest
may leave.  Stock Nova, started again, takes the migration for failed and
the instance for one of its own, and if the guest has left no host has an
instance that runs: the next reboot starts it a second time.

Nor does a nova-compute that lives come to an end where the message bus, or a
libvirtd, is away while Nova does its last steps.

What holds is where the guest is::

    here, with a job   the job is ended; look again
    here               roll back
    at the destination finish
    nowhere            roll back: the instance was shut down
    not to be found    neither the agent nor libvirt of the destination
      out                answer: ask again, and leave the instance migrating

In the meantime Nova's start-up passes the instance over, so it stays
migrating and nobody can start it twice.
"""

import functools
import threading

import libvirt
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import task_states
from oslo_log import log as logging
from oslo_serialization import jsonutils

from nova_dedup_migrate.compute import peer
from nova_dedup_migrate.compute import waiting
from nova_dedup_migrate.hypervisor import libvirt_monitor
from nova_dedup_migrate.rpc import errors

LOG = logging.getLogger(__name__)

#: Seconds between two looks at a guest that leaves or arrives.
_LOOK_S = 0.5
#: What JobInfo says of a guest that is not migrated any more.
_NO_JOB = (libvirt.VIR_DOMAIN_JOB_NONE, libvirt.VIR_DOMAIN_JOB_COMPLETED,
           libvirt.VIR_DOMAIN_JOB_FAILED, libvirt.VIR_DOMAIN_JOB_CANCELLED)
#: States in which the destination decides which of two guests goes on.
_LEAVING = (
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION),
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY),
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED))


class Recovery:
    """Settles migrations by where their guests are.

    :param host: name of this host
    :param get_guest: as nova.virt.libvirt.host.Host.get_guest
    :param state_at: callable(host, instance UUID, context) -> one of
        rpc.objects.GUEST_STATES; raises rpc.errors.AgentUnavailable
    :param forget_at: callable(host, instance UUID, context) that has
        libvirt forget a guest that does not run there; never raises
    :param manager: nova.compute.manager.ComputeManager
    :param journal: journal.Journal
    """

    def __init__(self, host, get_guest, state_at, forget_at, manager,
                 journal):
        self._host = host
        self._get_guest = get_guest
        self._state_at = state_at
        self._forget_at = forget_at
        self._manager = manager
        self._journal = journal
        self._under_way = set()
        self._stopping = threading.Event()

    def stop(self):
        """Begin nothing more."""
        self._stopping.set()

    def begin(self, instances):
        """Begin with what the journal has, in a thread for each migration.

        :param instances: those of this host, nova.objects.Instance
        :returns: UUIDs of those that are taken care of
        """
        here = {instance.uuid: instance for instance in instances}
        entries, damaged = self._journal.entries()
        for error in damaged:
            LOG.warning('What is known about a migration is damaged: %s',
                        error)
        taken = set()
        for entry in entries:
            instance = here.get(entry.instance_uuid)
            if (instance is not None
                    and instance.task_state == task_states.MIGRATING):
                taken.add(instance.uuid)
            threading.Thread(
                target=self.run, args=(entry,), daemon=True,
                name='dedup-recover-%s' % entry.instance_uuid).start()
        return taken

    def run(self, entry, status='failed'):
        """Settle one migration, as soon as that is possible; never raises.

        :param status: of the migration, if the guest has stayed
        """
        self._under_way.add(entry.instance_uuid)
        try:
            if waiting.until_answered(
                    functools.partial(self._settle, entry, status),
                    self._stopping,
                    'Settling live migration ' + entry.migration_uuid):
                self._journal.forget(entry)
        except Exception:
            LOG.exception('Live migration %s, which was interrupted, could '
                          'not be settled', entry.migration_uuid)
        self._under_way.discard(entry.instance_uuid)

    def has(self, instance_uuid):
        """Return whether a migration of an instance is being settled."""
        return instance_uuid in self._under_way

    def _settle(self, entry, status):
        """Return whether nothing is left to be done."""
        context = nova_context.get_admin_context()
        try:
            instance = objects.Instance.get_by_uuid(
                context, entry.instance_uuid,
                expected_attrs=['info_cache', 'metadata', 'system_metadata',
                                'numa_topology', 'flavor',
                                'migration_context', 'pci_devices',
                                'pci_requests'])
        except exception.InstanceNotFound:
            return True
        migration = objects.Migration.get_by_uuid(context,
                                                  entry.migration_uuid)
        if instance.host == entry.destination:
            self._finish(context, instance, migration)
            return True
        if instance.host != self._host:
            return True
        if instance.task_state != task_states.MIGRATING:
            # The last thing that a rollback saves, or somebody has reset it.
            if migration.status == 'running':
                migration.status = status
                migration.save()
            return True
        where = self._where(context, entry, instance)
        if where is None:
            return False
        data = entry.migrate_data
        data.migration = migration
        bdms = self._source_bdms(context, instance, data)
        LOG.info('Live migration %(migration)s was interrupted: the guest '
                 'is %(where)s', {'migration': migration.uuid,
                                  'where': where}, instance=instance)
        if where == 'there':
            self._manager._post_live_migration_update_host(
                context, instance, entry.destination, entry.block_migration,
                data, bdms)
        else:
            self._forget_at(entry.destination, instance.uuid, context)
            self._manager._rollback_live_migration(
                context, instance, entry.destination, data, status, bdms)
        return True

    # Where the guest is

    def _where(self, context, entry, instance):
        """Return here, there, nowhere; None when we are stopped."""
        said = None
        while not self._stopping.is_set():
            try:
                where = (self._look_here(instance)
                         or self._look_there(context, entry, instance))
                if where:
                    return where
                wait = _LOOK_S
            except (errors.AgentUnavailable, libvirt.libvirtError,
                    exception.NovaException) as error:
                if said is None:
                    LOG.warning('Nobody says where the guest is; the '
                                'instance stays migrating until somebody '
                                'does: %s', error, instance=instance)
                said = error
                wait = waiting.RETRY_S
            self._stopping.wait(wait)
        return None

    def _look_here(self, instance):
        """Return here, '' if it may be elsewhere; end a job that runs."""
        try:
            guest = self._get_guest(instance)
            while guest.is_active():
                state = tuple(guest._domain.state())
                if guest.get_job_info().type in _NO_JOB:
                    return '' if state in _LEAVING else 'here'
                guest.abort_job()
                self._stopping.wait(_LOOK_S)
        except exception.InstanceNotFound:
            return ''
        except libvirt.libvirtError as error:
            if libvirt_monitor.is_unavailable(error):
                raise
            # It has just left, or is past the point where it can stay.
            LOG.debug('The job was not ended: %s', error, instance=instance)
        return ''

    def _look_there(self, context, entry, instance):
        """Return there, nowhere or here; '' if it is not decided yet."""
        state = self._state_there(context, entry, instance)
        if state == 'here':
            return 'there'
        if state == 'arriving':
            return ''
        try:
            active = self._get_guest(instance).is_active()
        except exception.InstanceNotFound:
            active = False
        return 'here' if active else 'nowhere'

    def _state_there(self, context, entry, instance):
        """Return one of rpc.objects.GUEST_STATES.

        :raises AgentUnavailable: neither agent nor libvirt say
        """
        try:
            return self._state_at(entry.destination, instance.uuid, context)
        except errors.AgentUnavailable:
            data = entry.migrate_data
            address = (data.target_connect_addr
                       if 'target_connect_addr' in data else None)
            state = peer.guest_state(
                self._manager.driver._live_migration_uri(
                    address or entry.destination), instance.uuid)
            if state is None:
                raise
            return state

    # What Nova wants to know, and to have done

    def _source_bdms(self, context, instance, data):
        """Return the block devices as they were connected to this host."""
        bdms = objects.BlockDeviceMappingList.get_by_instance_uuid(
            context, instance.uuid)
        old = (data.old_vol_attachment_ids
               if 'old_vol_attachment_ids' in data else {})
        for bdm in bdms:
            if bdm.is_volume and bdm.volume_id in old:
                attachment = self._manager.volume_api.attachment_get(
                    context, old[bdm.volume_id])
                info = attachment['connection_info']
                info.setdefault('serial', bdm.volume_id)
                bdm.attachment_id = old[bdm.volume_id]
                bdm.connection_info = jsonutils.dumps(info)
                # Only Nova's rollback saves them.
        return bdms

    def _finish(self, context, instance, migration):
        """Do what is left when the instance is the destination's."""
        if migration.status == 'running':
            migration.status = 'completed'
            migration.save()
            self._manager._delete_allocation_after_move(context, instance,
                                                        migration)
