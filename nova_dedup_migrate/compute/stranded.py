# SPDX-License-Identifier: Apache-2.0
"""Requests to migrate that nobody carries out.

While nova-compute of the source is away, a request waits in its queue, or
was taken from there and went with the process.  Nova, started again, clears
the task state of the instance in either case.  A request that was waiting
is then carried out all the same: the guest leaves, the destination misses
the task state, and the instance becomes ERROR though it runs.  One that is
lost keeps its allocations and its status for ever.

So Nova's start-up is not shown such an instance, and what its newest
migration says decides::

    accepted    the request may still come: wait for it
    queued      it was lost: nobody else has what it needs
    preparing   likewise; what the destination has prepared is rolled back
    running     likewise, where the journal knows nothing of it
    error       likewise: Nova says so where a step of its manager fails, and
                leaves all else as it is

The same becomes of a request that a living nova-compute has lost, see
overdue.py.

Where Nova has cleared the task state, as before 34, the request is refused
when it comes: the instance may have been promised to somebody else.
"""

import functools
import threading
import time

from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import task_states
from nova.objects import fields
from oslo_log import log as logging

from nova_dedup_migrate.compute import prepared
from nova_dedup_migrate.compute import waiting

LOG = logging.getLogger(__name__)

#: Seconds after which nothing comes any more: the calls that Nova makes
#: before it sends the request time out after 60.
WAIT_S = 90.0
#: Seconds after which a destination has begun to make disks; its driver
#: then answers when they are there, and nothing is rolled back meanwhile.
PREPARED_S = 30.0
_LOOK_S = 1.0
#: Statuses in which the destination may have prepared something.
_PREPARED = ('preparing', 'running', 'error')
#: Those of a migration that Nova has not finished with.
_OPEN = ('accepted', 'queued', *_PREPARED)
#: Those in which libvirt may have been told to migrate.
_BEGUN = ('running', 'error')


class Stranded:
    """Settles them, in a thread for each.

    :param host: name of this host
    :param manager: nova.compute.manager.ComputeManager
    :param roll_back: callable(journal.Entry), recovery.Recovery.run
    :param runs_here: callable(nova.objects.Instance) -> whether its guest is
        here
    """

    def __init__(self, host, manager, roll_back, runs_here):
        self._host = host
        self._manager = manager
        self._roll_back = roll_back
        self._runs_here = runs_here
        self._lock = threading.Lock()
        self._waiting = set()
        self._stopping = threading.Event()

    def stop(self):
        """Begin nothing more."""
        self._stopping.set()

    def begin(self, context, instances):
        """Begin with those that have a task state and an open migration.

        :param instances: those of this host, nova.objects.Instance
        :returns: UUIDs of those that are taken care of
        """
        taken = set()
        for instance in instances:
            if instance.task_state != task_states.MIGRATING:
                continue
            migration = self.newest(context, instance.uuid)
            if migration is not None:
                taken.add(instance.uuid)
                self._start(migration, False)
        return taken

    def newest(self, context, instance_uuid):
        """Return the nova.objects.Migration that may be lost, or None."""
        return max(
            (one for one in objects.MigrationList.get_by_filters(
                context, {'instance_uuid': instance_uuid,
                          'source_compute': self._host,
                          'status': list(_OPEN)})
             if one.migration_type == fields.MigrationType.LIVE_MIGRATION),
            key=lambda one: one.id, default=None)

    def settle(self, migration):
        """Begin with one that has been waited for already."""
        self._start(migration, True)

    def _start(self, migration, overdue):
        self._waiting.add(migration.instance_uuid)
        threading.Thread(
            target=self.run, args=(migration, overdue), daemon=True,
            name='dedup-stranded-%s' % migration.instance_uuid).start()

    def has(self, instance_uuid):
        """Return whether one of an instance is being settled."""
        return instance_uuid in self._waiting

    def arrived(self, instance_uuid):
        """Take note that a request for an instance has come after all."""
        with self._lock:
            self._waiting.discard(instance_uuid)

    def run(self, migration, overdue=False):
        """Settle one, as soon as that is possible; never raises."""
        try:
            waiting.until_answered(
                functools.partial(self._settle, migration, overdue),
                self._stopping,
                'Settling live migration ' + migration.uuid)
        except Exception:
            LOG.exception('Live migration %s, which was lost, could not be '
                          'settled', migration.uuid)
        self.arrived(migration.instance_uuid)

    def _settle(self, migration, overdue):
        context = nova_context.get_admin_context()
        if not overdue and not self._is_lost(migration):
            return
        if not overdue and migration.status in _PREPARED:
            self._stopping.wait(PREPARED_S)
        if (not self._stopping.is_set()
                and not self._undone(context, migration)):
            self._give_up(context, migration)

    def _is_lost(self, migration):
        """Whether nobody will carry the request out; waits to know it."""
        if migration.status != 'accepted':
            return True
        LOG.info('Live migration %s may still be asked for: waiting for '
                 'up to %.0f s', migration.uuid, WAIT_S)
        deadline = time.monotonic() + WAIT_S
        while not self._stopping.is_set():
            if migration.instance_uuid not in self._waiting:
                return False
            migration = objects.Migration.get_by_uuid(
                nova_context.get_admin_context(), migration.uuid)
            if migration.status != 'accepted':
                # by the manager of this process, or by the conductor
                return False
            if time.monotonic() > deadline:
                return True
            self._stopping.wait(_LOOK_S)
        return False

    def _undone(self, context, migration):
        """Roll back what the destination has prepared.

        :returns: whether that was possible
        """
        if migration.status not in _PREPARED:
            return False
        instance = objects.Instance.get_by_uuid(
            context, migration.instance_uuid, expected_attrs=[
                'info_cache', 'metadata', 'system_metadata', 'flavor',
                'numa_topology', 'pci_requests'])
        try:
            entry = prepared.entry(self._manager, context, instance,
                                   migration)
        except Exception as error:
            LOG.warning('What %(host)s has prepared for the instance may '
                        'be left there: %(error)s',
                        {'host': migration.dest_compute, 'error': error},
                        instance=instance)
            return False
        self.arrived(migration.instance_uuid)
        self._roll_back(entry)
        return True

    def _give_up(self, context, migration):
        """Undo what Nova had done for it, if the guest has not left."""
        with self._lock:
            if migration.instance_uuid not in self._waiting:
                return
            instance = objects.Instance.get_by_uuid(
                context, migration.instance_uuid,
                expected_attrs=['info_cache', 'flavor', 'system_metadata'])
            if (instance.host != self._host
                    or instance.task_state != task_states.MIGRATING):
                return
            if migration.status in _BEGUN and not self._runs_here(instance):
                LOG.error('Live migration %s was lost, and the guest is not '
                          'here: the instance stays migrating until its '
                          'destination can be asked', migration.uuid,
                          instance=instance)
                return
            LOG.warning('Live migration %(migration)s was lost; the instance '
                        'stays here',
                        {'migration': migration.uuid}, instance=instance)
            self._manager._revert_allocation(context, instance, migration)
            self._unbind(context, instance, migration)
            migration.status = 'error'
            migration.save()
            # last, so that all is done again where it did not succeed
            instance.task_state = None
            instance.progress = 0
            instance.save(expected_task_state=[task_states.MIGRATING])

    def _unbind(self, context, instance, migration):
        """Remove what ports have of the destination, if it was chosen."""
        if not migration.dest_compute:
            return
        try:
            self._manager.network_api.setup_networks_on_host(
                context, instance, host=migration.dest_compute,
                teardown=True)
        except Exception as error:
            # as Nova has it where a queued migration is aborted
            LOG.error('Bindings of ports to %(host)s may be left: %(error)s',
                      {'host': migration.dest_compute, 'error': error},
                      instance=instance)


def refuse(context, instance, dest, recover_method, migrate_data):
    """Roll back a request that Nova itself has declared void.

    :param instance: nova.objects.Instance as it came with the request
    :param recover_method: as of LibvirtDriver._live_migration
    :returns: whether it was void
    """
    try:
        now = objects.Instance.get_by_uuid(context, instance.uuid)
    except Exception as error:
        LOG.warning('Whether the instance still has to migrate is not '
                    'known: %s', error, instance=instance)
        return False
    if now.task_state == task_states.MIGRATING and now.host == instance.host:
        return False
    migration = migrate_data.migration
    LOG.warning('Live migration %s is refused: Nova has cleared or changed '
                "the instance's task state since", migration.uuid,
                instance=instance)
    status = 'error'
    if now.host == instance.host:
        # Elsewhere, what a rollback removes belongs to the instance now.
        status = 'cancelled'
        try:
            _reclaim(now)
            recover_method(context, instance, dest, migrate_data,
                           migration_status=status)
            return True
        except exception.UnexpectedTaskStateError as error:
            # All is rolled back but the state, which is somebody else's.
            LOG.info('The state of the instance is left as it is: %s',
                     error, instance=instance)
    migration.status = status
    migration.save()
    return True


def _reclaim(instance):
    """Set the task state that Nova's rollback wants to clear itself."""
    if instance.task_state is None:
        instance.task_state = task_states.MIGRATING
        try:
            instance.save(expected_task_state=[None])
        except exception.UnexpectedTaskStateError as error:
            LOG.debug('Somebody was faster: %s', error, instance=instance)
