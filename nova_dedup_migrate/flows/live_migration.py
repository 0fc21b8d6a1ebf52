# SPDX-License-Identifier: Apache-2.0
"""The flow of a live migration.

::

    Open             the operation is written: preparing
    FillDisks        of a block migration: the destination builds what it
                     can of the disks, the source's QEMU is armed for them
    CollectFacts     both hosts -> facts
    ListPageCache    the guest's page cache -> the source's QEMU, facts
    IndexContent     the guest's disks -> the source's QEMU, facts
    MakePlan         facts -> plan
    Arm              plan -> the source's QEMU
    Operate          Nova's own live migration, and beside it the watch:
                     figures each 0.5 s, a round kept, a new decision;
                     disarmed if stock has become the better choice; the
                     guest's page cache listed again if it takes long
    CollectIncoming  the figures of the destination
    CollectDisks     the disks that were built are forgotten
    Close            a guest that has stayed: the undo log is carried out

All tasks write to the operation.  Of all tasks only Operate can fail, with
what Nova raised; then Open is reverted, which carries out the undo log.
Every other task that meets an error turns it into a warning: without facts
there is no plan, without a plan nothing is armed, and what Operate runs is
then a stock migration.

The flow is not persisted by taskflow, and not resumed.  After a crash the
guest is where libvirt has it, not where the flow had come to; so recovery
(compute/recovery) observes and decides anew, and what it needs from before
the crash is the operation with its undo log.
"""

from collections.abc import Callable
import dataclasses

from taskflow import engines
from taskflow.patterns import linear_flow

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import pacing
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.tasks import arm
from nova_dedup_migrate.tasks import collect_facts
from nova_dedup_migrate.tasks import collect_incoming
from nova_dedup_migrate.tasks import content_index
from nova_dedup_migrate.tasks import disk_port
from nova_dedup_migrate.tasks import fill_disks
from nova_dedup_migrate.tasks import frame
from nova_dedup_migrate.tasks import operate
from nova_dedup_migrate.tasks import page_cache
from nova_dedup_migrate.tasks import plan
from nova_dedup_migrate.tasks import refresh
from nova_dedup_migrate.tasks import watch


@dataclasses.dataclass(frozen=True)
class MigrationPorts:
    """What the flow needs from those who know Nova and the agents.

    :ivar guest: the guest on the source
    :ivar collect_facts: returns Facts
    :ivar operate: runs Nova's live migration until its end; raises what
        Nova raises
    :ivar collect_incoming: returns the destination's figures
    :ivar reason_for_stock: why the migration is an ordinary one whatever
        the facts are, so that none are collected; '' if it need not be
    :ivar loader: lists the page cache of the guest, None if it is not to be
        listed
    :ivar list_limit: seconds that listing may take, for a guest that caches
        little
    :ivar index: how the disks are indexed
    :ivar interval: seconds between two looks of the watch
    :ivar rate: sets the rate of each round, None if it is Nova's
    :ivar disks: builds disks at the destination, None: not to be done
    :ivar disk_time: seconds after which nothing more of them is built
    :ivar min_gain: share of the time that it has to save
    :ivar always_build: whether to build disks whatever is predicted
    """

    guest: hypervisor.Guest
    collect_facts: Callable[[], facts.Facts]
    operate: Callable[[], None]
    collect_incoming: Callable[[], objects.DedupIncomingReply]
    reason_for_stock: str = ''
    loader: loading.PageCacheLoader | None = None
    list_limit: float = 5.0
    index: content_index.Settings = content_index.Settings()
    interval: float = 0.5
    rate: pacing.AdaptiveRate | None = None
    disks: disk_port.DiskPort | None = None
    disk_time: float = 3600.0
    min_gain: float = 0.05
    always_build: bool = False


def create(operation: operations.Operation,
           ports: MigrationPorts) -> linear_flow.Flow:
    """Return the flow."""
    beside = watch.Watch(
        operation, ports.guest, ports.interval,
        refresh.Refresh(operation, ports.loader, ports.list_limit)
        if ports.loader else None,
        ports.rate,
        fill_disks.DiskLook(operation, ports.disks) if ports.disks else None)
    return linear_flow.Flow(
        'live-migration-' + operation.migration_uuid).add(
            frame.Open(operation, ports.guest),
            fill_disks.FillDisks(operation, ports.disks, ports.disk_time,
                                 ports.min_gain, ports.always_build),
            collect_facts.CollectFacts(operation, ports.collect_facts,
                                       ports.reason_for_stock),
            page_cache.ListPageCache(operation, ports.guest, ports.loader,
                                     ports.list_limit),
            content_index.IndexContent(operation, ports.guest, ports.index),
            plan.MakePlan(operation),
            arm.Arm(operation, ports.guest),
            operate.Operate(operation, ports.operate, beside),
            collect_incoming.CollectIncoming(operation,
                                             ports.collect_incoming),
            fill_disks.CollectDisks(operation, ports.disks),
            frame.Close(operation, ports.guest))


def run(operation: operations.Operation, ports: MigrationPorts) -> None:
    """Run the flow in this thread.

    :raises: the very exception of ports.operate, and no other
    """
    failure = None
    try:
        engines.run(create(operation, ports), engine='serial')
    except Exception as error:
        failure = error
    finally:
        _close(operation, ports.guest)
    if operation.error is not None:
        raise operation.error
    if failure is not None:
        operation.warn('running the flow', failure)
        if not operation.operating:
            ports.operate()


def _close(operation: operations.Operation,
           guest: hypervisor.Guest) -> None:
    try:
        guest.close()
    except Exception as error:
        operation.warn('ending the subscription to events', error)
