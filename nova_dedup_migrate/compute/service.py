# SPDX-License-Identifier: Apache-2.0
"""What the driver adds to Nova's, in one object."""

import contextlib
import functools
import os

from nova import context as nova_context
from nova import exception
from nova import objects
import nova.conf
from nova.virt import event as virtevent
from oslo_concurrency import lockutils
from oslo_log import log as logging

from nova_dedup_migrate.agent import link_rates
from nova_dedup_migrate.compute import attempt as compute_attempt
from nova_dedup_migrate.compute import facts_collector
from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.compute import journal
from nova_dedup_migrate.compute import overdue
from nova_dedup_migrate.compute import page_cache
from nova_dedup_migrate.compute import prepared
from nova_dedup_migrate.compute import recovery
from nova_dedup_migrate.compute import stranded
from nova_dedup_migrate.compute import strategy
from nova_dedup_migrate.compute import tracking
from nova_dedup_migrate.compute import waiting
from nova_dedup_migrate.conf import dedup_migrate as options
from nova_dedup_migrate.flows import live_migration
from nova_dedup_migrate.reports import keeper
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import transport
from nova_dedup_migrate.tasks import record as task_record

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

#: After these a guest runs that may not have run before.
_STARTS = (virtevent.EVENT_LIFECYCLE_STARTED,
           virtevent.EVENT_LIFECYCLE_RESUMED)


class DedupMigrate:
    """Tracking, migrations and reports of one nova-compute.

    No method raises on its own account: Nova's callers know nothing of
    us.

    :param driver: the DedupMigrateLibvirtDriver
    """

    def __init__(self, driver):
        options.register_opts(CONF)
        self._driver = driver
        self._attempts = {}
        self._tracker = tracking.Tracker(self._resolve,
                                         self._attempts.__contains__)

    @property
    def _conf(self):
        return CONF.dedup_migrate

    @functools.cached_property
    def _agents(self):
        # not before the first migration: a bus that is down must not
        # keep nova-compute from starting
        return api.AgentAPI(transport.get_transport(CONF),
                            self._conf.rpc_timeout)

    @functools.cached_property
    def _links(self):
        return link_rates.LinkRates(
            self._agents, CONF.host, self._conf.probe_time,
            self._conf.probe_bytes, self._conf.probe_cache_time)

    @functools.cached_property
    def _journal(self):
        return journal.Journal(os.path.join(
            CONF.state_path, 'dedup_migrate', 'under-way'))

    @property
    def _manager(self):
        return self._driver.virtapi._compute

    @functools.cached_property
    def _recovery(self):
        return recovery.Recovery(
            CONF.host, self._driver._host.get_guest, self._state_at,
            self._forget_at, self._manager, self._journal)

    @functools.cached_property
    def _stranded(self):
        return stranded.Stranded(CONF.host, self._manager,
                                 self._recovery.run, self._runs_here)

    @functools.cached_property
    def _overdue(self):
        return overdue.Overdue(CONF.host, self._in_hand,
                               self._stranded.newest, self._stranded.settle)

    @functools.cached_property
    def _reports(self):
        return keeper.ReportKeeper(CONF)

    # Life

    def start(self, host):
        """Pick up what an earlier nova-compute has left.

        :param host: name of this host
        """
        try:
            self._journal.tidy()
        except OSError as error:
            LOG.warning('What an earlier nova-compute had begun to write '
                        'stays: %s', error)
        try:
            self._reports.close_unfinished()
        except Exception as error:
            LOG.warning('Reports of interrupted migrations stay open: %s',
                        error)
        try:
            for uuid in self._driver.list_instance_uuids():
                self._tracker.look(uuid)
        except Exception as error:
            LOG.warning('Guests that run already are not tracked: %s',
                        error)
        self._overdue.start()

    def stop(self):
        for each in (self._tracker, self._overdue, self._stranded,
                     self._recovery):
            each.stop()

    def take_over(self, context, instances):
        """Return the instances of this host that Nova is to look after.

        The others were being migrated when an earlier nova-compute ended,
        or were to be; that is finished, awaited or rolled back first.

        :param instances: nova.objects.InstanceList
        """
        for begin in (self._recovery.begin,
                      functools.partial(self._stranded.begin, context)):
            try:
                taken = begin(instances)
            except Exception as error:
                LOG.warning('Migrations that were interrupted are left to '
                            'Nova: %s', error)
                continue
            instances = objects.InstanceList(context, objects=[
                instance for instance in instances
                if instance.uuid not in taken])
        return instances

    def preparing(self, instance):
        """Return the lock of what is done here before an instance comes."""
        return lockutils.lock('dedup-migrate-preparing-' + instance.uuid)

    def is_wanted(self, context, instance):
        """Whether an instance still has to migrate to this host."""
        return prepared.is_wanted(context, instance, CONF.host)

    def _runs_here(self, instance):
        """Whether libvirt has its guest, and it has not ended.

        :raises: what Host.get_guest does, unless there is none
        """
        try:
            return self._driver._host.get_guest(instance).is_active()
        except exception.InstanceNotFound:
            return False

    def _in_hand(self, uuid):
        """Whether somebody is at the migration of an instance."""
        if (uuid in self._attempts or self._stranded.has(uuid)
                or self._recovery.has(uuid)):
            return True
        waits = self._manager._waiting_live_migrations.get(uuid)
        if waits is None:
            return False
        # It stays there as well where the destination could not prepare
        # itself.
        _migration, future = waits
        return future is None or not future.done()

    # Tracking

    def see_event(self, event):
        """Look at a guest that has started, resumed or arrived."""
        if (isinstance(event, virtevent.LifecycleEvent)
                and event.get_transition() in _STARTS):
            self._tracker.look(event.get_instance_uuid())

    def _resolve(self, uuid):
        """Return (guest, whether to track it)."""
        try:
            instance = objects.Instance.get_by_uuid(
                nova_context.get_admin_context(), uuid,
                expected_attrs=['flavor', 'system_metadata'])
        except exception.InstanceNotFound as error:
            raise LookupError(uuid) from error
        wanted = (self._conf.enabled and self._conf.track_io
                  and self._strategy(instance)[0] != 'off')
        return guests.open_guest(self._driver._host, instance), wanted

    def _strategy(self, instance):
        return strategy.of_instance(instance, self._conf.strategy)

    def _state_at(self, host, uuid, context):
        """Return one of rpc.objects.GUEST_STATES.

        :raises AgentUnavailable:
        """
        return self._agents.guest_state(context, host, uuid)

    def _forget_at(self, host, uuid, context):
        """Have a host forget a guest that has not arrived there.

        A QEMU that ends when it has taken the guest over, and libvirt has
        not yet told the source, leaves a domain that is shut off.  Nova's
        rollback comes next, whatever becomes of this.
        """
        try:
            self._agents.forget_guest(context, host, uuid)
        except Exception as error:
            LOG.info('Whether libvirt of %(host)s still knows of instance '
                     '%(uuid)s was not looked at: %(error)s',
                     {'host': host, 'uuid': uuid, 'error': error})

    def _link_rate(self, context, destination, measure):
        """Return bytes/s, measured now or by an earlier migration."""
        rate = (self._links.rate(context, destination) if measure
                else None)
        return rate or self._reports.link_rate(destination)

    # Migrations

    def attempt_of(self, instance):
        """Return the attempt.Attempt that is under way, or None."""
        return self._attempts.get(instance.uuid)

    def refuses(self, context, instance, dest, recover_method,
                migrate_data):
        """Roll back a request that is not wanted any more, see stranded.

        :returns: whether it was one
        """
        self._stranded.arrived(instance.uuid)
        return stranded.refuse(context, instance, dest, recover_method,
                               migrate_data)

    @contextlib.contextmanager
    def attempt(self, instance, destination, block_migration, migrate_data):
        """Make the Attempt that the driver's methods share meanwhile.

        Should this process be killed, the next one finishes it; should Nova
        not come to an end, we do, when there is an answer.
        """
        attempt = compute_attempt.Attempt(
            task_record.MigrationRecord(
                migrate_data.migration.uuid, instance.uuid, CONF.host,
                destination, *self._strategy(instance)),
            functools.partial(self._driver.live_migration_force_complete,
                              instance),
            functools.partial(self._state_at, destination, instance.uuid),
            functools.partial(self._forget_at, destination, instance.uuid))
        entry = journal.Entry(
            attempt.record.migration_uuid, instance.uuid, destination,
            bool(block_migration), migrate_data)
        self._attempts[instance.uuid] = attempt
        try:
            try:
                self._journal.keep(entry)
            except OSError as error:
                attempt.record.warn('writing the journal', error)
            yield attempt
        finally:
            attempt.over('failed')
            del self._attempts[instance.uuid]
            if attempt.unsettled:
                self._recovery.run(entry, attempt.failure)
            else:
                self._journal.forget(entry)

    def await_libvirt(self, instance):
        """Wait for a libvirtd that has just ended."""
        waiting.await_libvirt(functools.partial(
            self._driver._host.get_guest, instance))

    def migrate(self, context, instance, migrate_data, attempt, operate):
        """Run operate() within the flow, or alone where we are off.

        :raises: what operate() raises
        """
        record = attempt.record
        if not self._conf.enabled:
            return operate()
        self.await_libvirt(instance)
        try:
            guest = guests.open_guest(self._driver._host, instance)
            collector = facts_collector.FactsCollector(
                self._driver, self._agents, guest, instance, migrate_data,
                record, self._link_rate)
            hands = live_migration.Hands(
                guest=guest,
                gather=functools.partial(collector.collect, context),
                operate=operate,
                collect=functools.partial(
                    self._agents.incoming, context, record.destination,
                    instance.uuid, record.migration_uuid),
                keep=self._reports.keep,
                asker=page_cache.asker(self._conf, guest),
                ask_limit=self._conf.page_cache_time,
                interval=self._conf.watch_interval)
        except Exception as error:
            record.warn('preparing', error)
            return operate()
        return live_migration.run(record, hands)
