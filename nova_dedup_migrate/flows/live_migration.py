# SPDX-License-Identifier: Apache-2.0
"""The flow of a live migration.

::

    OpenReport    the report says: running
    GatherFacts   both hosts -> facts
    AskGuest      the guest's page cache -> the source's QEMU, facts
    MakePlan      facts -> plan
    Arm           plan -> the source's QEMU
    Operate       Nova's own live migration, and beside it the Watch:
                  a look each 0.5 s, a round kept, a new decision,
                  disarmed where stock has become the better choice; the
                  guest asked again if it takes long
    Disarm        a guest that has stayed keeps no order
    ForgetAnswer  nor what it said of its page cache
    Collect       the figures of the destination
    CloseReport   the report says: completed or cancelled

Of all tasks only Operate can fail, with what Nova raised; then Arm is
reverted (the guest is disarmed), AskGuest (what the guest listed is
forgotten) and OpenReport (the report says: failed).  Every other task
that meets an error notes it and lets the flow go on: without facts there
is no plan, without a plan nothing is armed, and what Operate runs is then
a stock migration.
"""

import dataclasses
import typing

from taskflow import engines
from taskflow.patterns import linear_flow

from nova_dedup_migrate.tasks import arm
from nova_dedup_migrate.tasks import ask
from nova_dedup_migrate.tasks import collect
from nova_dedup_migrate.tasks import decide
from nova_dedup_migrate.tasks import gather
from nova_dedup_migrate.tasks import operate
from nova_dedup_migrate.tasks import refresh
from nova_dedup_migrate.tasks import report
from nova_dedup_migrate.tasks import watch


@dataclasses.dataclass(frozen=True)
class Hands:
    """What the flow needs done, by those who know Nova and the agents.

    :ivar guest: hypervisor.base.Guest at the source
    :ivar gather: () -> planner.facts.Facts
    :ivar operate: () -> None, when Nova is done; raises what Nova raises
    :ivar collect: () -> the destination's figures
    :ivar keep: (MigrationRecord) -> None, writes its report
    :ivar asker: pagecache.ask.Asker of the guest, None if it is not to be
        asked
    :ivar ask_limit: seconds asking may take
    :ivar interval: seconds between two looks of the watch
    """

    guest: typing.Any
    gather: typing.Callable
    operate: typing.Callable
    collect: typing.Callable
    keep: typing.Callable
    asker: typing.Any = None
    ask_limit: float = 5.0
    interval: float = 0.5


def create(record, hands):
    """Return the flow.

    :param record: tasks.record.MigrationRecord
    :param hands: Hands
    """
    beside = watch.Watch(
        record, hands.guest, hands.interval,
        refresh.Refresh(record, hands.asker) if hands.asker else None)
    return linear_flow.Flow('live-migration-' + record.migration_uuid).add(
        report.OpenReport(record, hands.keep),
        gather.GatherFacts(record, hands.gather),
        ask.AskGuest(record, hands.guest, hands.asker, hands.ask_limit),
        decide.MakePlan(record),
        arm.Arm(record, hands.guest),
        operate.Operate(record, hands.operate, beside),
        arm.Disarm(record, hands.guest),
        ask.ForgetAnswer(record, hands.guest),
        collect.Collect(record, hands.collect),
        report.CloseReport(record, hands.keep))


def run(record, hands):
    """Run the flow in this thread.

    :raises: the very exception of hands.operate, and no other
    """
    failure = None
    try:
        engines.run(create(record, hands), engine='serial')
    except Exception as error:
        failure = error
    finally:
        _close(record, hands.guest)
    if record.error is not None:
        raise record.error
    if failure is not None:
        record.warn('running the flow', failure)
        if not record.operating:
            hands.operate()


def _close(record, guest):
    try:
        guest.close()
    except Exception as error:
        record.warn('ending the subscription to events', error)
