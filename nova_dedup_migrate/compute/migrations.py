# SPDX-License-Identifier: Apache-2.0
"""Tracking and live migrations of one nova-compute: what the driver calls.

With ``[dedup_migrate] enabled = false`` the driver calls nothing here but
start() and stop(), and Nova's own code runs unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import functools
import typing

import libvirt
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.compute import task_states
import nova.conf
from nova.virt import event as virtevent
from oslo_log import log as logging
import oslo_messaging

from nova_dedup_migrate.compute import actions
from nova_dedup_migrate.compute import destination
from nova_dedup_migrate.compute import disk_filler
from nova_dedup_migrate.compute import facts_collector
from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.compute import manager as compute_manager
from nova_dedup_migrate.compute import migrate_data as kept_data
from nova_dedup_migrate.compute import observer
from nova_dedup_migrate.compute import page_cache
from nova_dedup_migrate.compute import strategy
from nova_dedup_migrate.compute import waiting
from nova_dedup_migrate.conf import dedup_migrate as options
from nova_dedup_migrate.flows import live_migration
from nova_dedup_migrate.hypervisor import tracking
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.operations import session as compute_session
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.planner import pacing
from nova_dedup_migrate.recovery import loop
from nova_dedup_migrate.recovery import owners as ownership
from nova_dedup_migrate.reports import build
from nova_dedup_migrate.reports import links
from nova_dedup_migrate.reports import notify
from nova_dedup_migrate.reports import report as reports
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.tasks import content_index

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

#: After these a guest runs that may not have run before.
_STARTS = (virtevent.EVENT_LIFECYCLE_STARTED,
           virtevent.EVENT_LIFECYCLE_RESUMED)
#: Times that a step is tried which a libvirtd that ends makes fail.
_LIBVIRT_ATTEMPTS = 3
#: Seconds that a new request waits for recovery to settle an earlier one.
_SETTLE_S = 300.0


class LiveMigrations:
    """What the driver adds to Nova's.

    No method raises on its own account: Nova's callers know nothing of
    us.

    :param driver: the DedupMigrateLibvirtDriver
    """

    def __init__(self, driver: typing.Any) -> None:
        options.register_opts(CONF)
        self._driver = driver
        self._sessions: dict[str, compute_session.Session] = {}
        self._tracker = tracking.Tracker(self._resolve)
        self._manager = compute_manager.ManagerPort(driver)
        self._owners = ownership.Owners(self._manager.queued)

    @property
    def _conf(self) -> typing.Any:
        return CONF.dedup_migrate

    @property
    def enabled(self) -> bool:
        """Whether this host takes part."""
        return self._conf.enabled

    @functools.cached_property
    def _agents(self) -> api.AgentAPI:
        # not before the first migration: a bus that is down must not
        # keep nova-compute from starting
        return api.AgentAPI.from_conf(CONF)

    @functools.cached_property
    def _store(self) -> store.OperationStore:
        return store.OperationStore(self._conf.operations_path,
                                    self._conf.operations_kept)

    @functools.cached_property
    def _links(self) -> links.LinkHistory:
        return links.LinkHistory(self._store)

    @functools.cached_property
    def _notifier(self) -> notify.ReportNotifier:
        return notify.ReportNotifier(CONF, CONF.host)

    @functools.cached_property
    def _actions(self) -> actions.Actions:
        return actions.Actions(
            self._manager, self._driver._host,
            functools.partial(guests.open_guest, self._driver._host),
            self._agents)

    @functools.cached_property
    def _recovery(self) -> loop.RecoveryLoop:
        return loop.RecoveryLoop(
            observer.Observer(self._manager, self._driver._host.get_guest,
                              self._agents, self._owners),
            self._actions, self._owners, self._store,
            lambda: self._conf.recovery_timeout)

    # Life

    def start(self, host: str) -> None:
        """Take over what an earlier nova-compute has left.

        :param host: name of this host
        """
        try:
            found, damaged = self._store.unfinished()
            for error in damaged:
                LOG.error('An operation is not recovered: %s', error)
            for durable, report in found:
                if durable.source == host:
                    # It may have passed while no nova-compute ran.
                    durable.deadline = None
                    self._recovery.hold(operations.Operation(
                        durable, self._save, report), loaded=True)
        except Exception as error:
            LOG.error('Live migrations that were interrupted are left to '
                      'Nova: %s', error)
        try:
            self._tracker.look_at_all(self._driver.list_instance_uuids(),
                                      functools.partial(self._all_wanted,
                                                        host))
        except Exception as error:
            LOG.warning('Recording of guest I/O is not switched for the '
                        'guests that run already: %s', error)

    def stop(self) -> None:
        self._tracker.stop()
        if '_recovery' in self.__dict__:
            self._recovery.stop()

    def take_over(self, context: nova_context.RequestContext,
                  instances: objects.InstanceList) -> objects.InstanceList:
        """Return the instances that Nova's start-up is to process.

        Nova would clear the task state of the others, which recovery
        settles first.

        :param instances: of this host
        """
        return objects.InstanceList(context, objects=[
            instance for instance in instances
            if instance.task_state != task_states.MIGRATING
            or self._recovery.held(instance.uuid) is None])

    # Tracking

    def see_event(self, event: virtevent.Event) -> None:
        """Look at a guest that has started, resumed or arrived."""
        if (self.enabled and isinstance(event, virtevent.LifecycleEvent)
                and event.get_transition() in _STARTS):
            self._tracker.look(event.get_instance_uuid())

    def _resolve(self, uuid: str, wanted: bool | None) -> tuple[
            guests.InstanceGuest, bool]:
        """Return (guest, whether to track it).

        :param wanted: None if the database has to be read for it
        :raises LookupError: this host has no such guest
        """
        if wanted is None:
            try:
                instance = objects.Instance.get_by_uuid(
                    nova_context.get_admin_context(), uuid,
                    expected_attrs=['flavor', 'system_metadata'])
            except exception.InstanceNotFound as error:
                raise LookupError(uuid) from error
            wanted = self._is_tracked(instance)
        return guests.open_guest(self._driver._host,
                                 self._manager.named(uuid)), wanted

    def _all_wanted(self, host: str) -> dict[str, bool]:
        """Return {instance UUID: whether to track it}: one query."""
        if not self.enabled:
            return {}
        return {instance.uuid: self._is_tracked(instance)
                for instance in objects.InstanceList.get_by_host(
                    nova_context.get_admin_context(), host,
                    expected_attrs=['flavor', 'system_metadata'])}

    def _is_tracked(self, instance: objects.Instance) -> bool:
        return (self.enabled and self._conf.track_io
                and self._strategy(instance)[0] != 'off')

    def _strategy(self, instance: objects.Instance) -> tuple[str, str]:
        return strategy.of_instance(instance, self._conf.strategy)

    # Operations

    def _save(self, operation: operations.Operation) -> None:
        """Write an operation; send its report if it has ended."""
        try:
            self._store.write(operation)
        finally:
            if operation.phase == operations.ENDED:
                self._send(build.of_operation(operation))

    def _send(self, report: reports.Report) -> None:
        """Send the report of a migration that has ended; never raises."""
        self._links.learn(report)
        try:
            self._notifier.end(report)
        except Exception as error:
            # The bus and its drivers have errors of many kinds, and a
            # report that is not sent is no reason to fail anything.
            LOG.warning('The report of live migration %(migration)s was not '
                        'sent as a notification: %(error)s. It is in '
                        '%(path)s.',
                        {'migration': report.migration_uuid, 'error': error,
                         'path': self._store.path})

    def _operation(self, migration_uuid: str, instance: objects.Instance,
                   destination: str, data: dict) -> operations.Operation:
        asked, source = self._strategy(instance)
        return operations.Operation(operations.Durable(
            migration_uuid, operations.LIVE_MIGRATION, instance.uuid,
            instance.host, destination, asked, source, data=data),
            self._save)

    def request(self, context: nova_context.RequestContext,
                instance: objects.Instance,
                data: objects.LibvirtLiveMigrateData) -> None:
        """Keep what the source has agreed to, before Nova begins.

        Whatever is lost from now on, this host can roll it back.
        """
        try:
            migration = self._manager.requested(instance.uuid,
                                                instance.host)
            if migration is None:
                return
            operation = self._operation(
                migration.uuid, instance, '', kept_data.encode(
                    data, data.block_migration,
                    self._manager.volumes(context, instance)))
            operation.save()
            self._recovery.hold(operation)
        except Exception as error:
            LOG.warning('Instance %(uuid)s: if nova-compute ends while its '
                        'destination prepares itself, the live migration is '
                        'left to Nova: %(error)s',
                        {'uuid': instance.uuid, 'error': error})

    def session_of(self, instance: objects.Instance
                   ) -> compute_session.Session | None:
        """Return the Session that is under way, or None."""
        return self._sessions.get(instance.uuid)

    @contextlib.contextmanager
    def session(self, context: nova_context.RequestContext,
                instance: objects.Instance, dest: str,
                post_method: Callable[..., None],
                recover_method: Callable[..., None], block_migration: bool,
                migrate_data: objects.LibvirtLiveMigrateData
                ) -> Iterator[compute_session.Session | None]:
        """Own the migration of an instance in the block.

        Yields None if Nova does not want it any more.  An error in the
        block is not raised: recovery settles the migration.
        """
        with self._owners.claim(instance.uuid, ownership.SESSION,
                                _SETTLE_S) as mine:
            if not mine or not self._is_wanted(context, instance):
                self._refuse(context, instance, dest, recover_method,
                             migrate_data)
                yield None
                return
            operation = self._begin(instance, dest, block_migration,
                                    migrate_data)
            session = compute_session.Session(
                operation, instance, migrate_data,
                self._manager.post_method(post_method), recover_method,
                functools.partial(
                    self._driver.live_migration_force_complete, instance),
                self._actions.forget_guest)
            self._sessions[instance.uuid] = session
            try:
                yield session
            except Exception as error:
                session.fail(error)
                self._manager.add_fault(operation, error)
                LOG.exception('Live migration %s failed in this '
                              'nova-compute; recovery settles it',
                              operation.migration_uuid, instance=instance)
            finally:
                del self._sessions[instance.uuid]
                if session.settled:
                    self._recovery.release(operation)
        if not session.settled:
            self._recovery.settle_soon(instance.uuid)

    def _begin(self, instance: objects.Instance, dest: str,
               block_migration: bool,
               migrate_data: objects.LibvirtLiveMigrateData
               ) -> operations.Operation:
        """Return the operation, written with all that Nova knows now."""
        uuid = migrate_data.migration.uuid
        held = self._recovery.held(instance.uuid)
        if held is not None and held.migration_uuid != uuid:
            held = None
        volumes = kept_data.volumes(held.durable.data) if held else {}
        old = (migrate_data.old_vol_attachment_ids
               if 'old_vol_attachment_ids' in migrate_data else {})
        data = kept_data.encode(migrate_data, block_migration,
                                {**volumes, **old})
        if held is not None:
            # What this process reports takes the place of what an earlier
            # one did, which only had the request.
            held.earlier = None
            held.enter(operations.PREPARING, destination=dest, data=data)
            return held
        operation = self._operation(uuid, instance, dest, data)
        operation.enter(operations.PREPARING)
        self._recovery.hold(operation)
        return operation

    @staticmethod
    def _is_wanted(context: nova_context.RequestContext,
                   instance: objects.Instance) -> bool:
        """Whether the instance is still migrating, as far as is known."""
        try:
            now = objects.Instance.get_by_uuid(context, instance.uuid)
        except Exception as error:
            LOG.warning('The state of the instance could not be read: '
                        '%s. Its live migration begins.', error,
                        instance=instance)
            return True
        return (now.task_state == task_states.MIGRATING
                and now.host == instance.host)

    def _refuse(self, context: nova_context.RequestContext,
                instance: objects.Instance, dest: str,
                recover_method: Callable[..., None],
                migrate_data: objects.LibvirtLiveMigrateData) -> None:
        """Roll back what the destination has prepared for nothing."""
        LOG.warning('Live migration %s is refused: the task state or the '
                    'host of the instance has changed since its request',
                    migrate_data.migration.uuid, instance=instance)
        try:
            self._manager.reclaim(context, instance)
            recover_method(context, instance, dest, migrate_data,
                           migration_status='cancelled')
        except Exception as error:
            LOG.critical('What %(dest)s has prepared for live migration '
                         '%(migration)s is left there: %(error)s. Remove it '
                         'by hand.', {'dest': dest, 'error': error,
                         'migration': migrate_data.migration.uuid},
                         instance=instance)

    def require_wanted(self, context: nova_context.RequestContext,
                       instance: objects.Instance) -> None:
        """Raise unless a migration to this host is being prepared.

        :raises MigrationError:
        """
        destination.require_wanted(context, instance, self._manager.host)

    def with_libvirt(self, instance: objects.Instance,
                     method: Callable[..., typing.Any], *args: typing.Any,
                     **kwargs: typing.Any) -> typing.Any:
        """Return what a method of Nova's does, repeated if libvirtd ends.

        A message bus that does not answer is treated alike.

        :raises: what it raises the third time, or without libvirt's doing
        """
        for _ in range(_LIBVIRT_ATTEMPTS - 1):
            self.await_libvirt(instance)
            try:
                return method(*args, **kwargs)
            except (libvirt.libvirtError, exception.HypervisorUnavailable,
                    oslo_messaging.MessagingException) as error:
                LOG.warning('A step at the end of the live migration failed '
                            'on its destination: %s. It is repeated.', error,
                            instance=instance)
        self.await_libvirt(instance)
        return method(*args, **kwargs)

    def await_libvirt(self, instance: objects.Instance) -> None:
        """Wait for a libvirtd that has just ended."""
        waiting.await_libvirt(functools.partial(
            self._driver._host.get_guest, instance))

    def migrate(self, context: nova_context.RequestContext,
                instance: objects.Instance,
                session: compute_session.Session,
                migrate_data: objects.LibvirtLiveMigrateData,
                operate: Callable[[], None]) -> None:
        """Run operate() within the flow, or alone if that cannot be.

        :raises: what operate() raises
        """
        operation = session.operation
        self.await_libvirt(instance)
        try:
            guest = guests.open_guest(self._driver._host, instance)
            ports = self._ports(context, instance, operation, migrate_data,
                                guest, operate)
        except Exception as error:
            operation.warn('preparing', error)
            return operate()
        return live_migration.run(operation, ports)

    def _rate(self, operation: operations.Operation
              ) -> pacing.AdaptiveRate | None:
        """Return what sets the rate of each round, None if Nova does."""
        if (self._conf.pacing == 'fixed'
                or operation.strategy == 'off'):
            return None
        maximum = self._conf.pacing_maximum * 125_000
        limit = CONF.libvirt.live_migration_bandwidth << 20
        return pacing.AdaptiveRate(self._conf.pacing_minimum * 125_000,
                                   min(maximum, limit or maximum))

    def _ports(self, context: nova_context.RequestContext,
               instance: objects.Instance,
               operation: operations.Operation,
               migrate_data: objects.LibvirtLiveMigrateData,
               guest: guests.InstanceGuest,
               operate: Callable[[], None]
               ) -> live_migration.MigrationPorts:
        collector = facts_collector.FactsCollector(
            self._driver, self._agents, guest, instance, migrate_data,
            operation, self._links.rate)
        return live_migration.MigrationPorts(
            guest=guest,
            collect_facts=functools.partial(collector.collect, context),
            operate=operate,
            collect_incoming=functools.partial(
                self._agents.incoming, context, operation.destination,
                instance.uuid, operation.migration_uuid),
            reason_for_stock=facts_collector.obstacle(
                self._conf, operation.strategy, operation.strategy_source,
                lambda: guest),
            loader=page_cache.loader(self._conf, guest),
            list_limit=self._conf.page_cache_time,
            index=content_index.Settings(
                strategy.content_index_of(instance,
                                          self._conf.content_index)[0],
                self._conf.content_index_time,
                self._conf.content_index_rate << 20,
                self._conf.content_index_memory << 20),
            interval=self._conf.watch_interval,
            disks=self._disks(context, instance, operation, migrate_data,
                              guest),
            disk_time=self._conf.disk_time, min_gain=self._conf.min_gain,
            always_build=self._conf.disks == 'always',
            rate=self._rate(operation))

    def _disks(self, context: nova_context.RequestContext,
               instance: objects.Instance,
               operation: operations.Operation,
               migrate_data: objects.LibvirtLiveMigrateData,
               guest: guests.InstanceGuest
               ) -> disk_filler.DiskFiller | None:
        """Return what builds the disks, None if they are not built."""
        if (not migrate_data.block_migration or self._conf.disks == 'off'
                or operation.strategy == 'off' or not guest.is_patched()):
            return None
        return disk_filler.DiskFiller(
            self._driver, self._agents, guest, instance, migrate_data,
            operation, self._links.rate, context)
