# SPDX-License-Identifier: Apache-2.0
"""Whether to go on as planned, while a migration runs (P1.6, B.4).

QEMU itself keeps storage from holding a migration up: what storage does
not deliver in time the link sends, and where more records are refused
than used it sends no more of them (qemu/src/migration/dedup/
source-answers.c).  What it does not know is that reading is no help: the
destination's storage is busy with it, and others use that storage.  That
is decided here, from what has come of it so far, and never from a single
bad moment.

Some guests dirty two to three times as much while they are migrated as
before, so what is left is predicted anew from the rates seen now.
"""

import dataclasses

from nova_dedup_migrate.planner import model
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.planner import units

KEEP = 'keep'
DISARM = 'disarm'

#: Pages that must have come to an end before they count as evidence.
_EVIDENCE = 4096
#: Less than that share read by storage, the rest resent, is not help.
_HELP = 0.05


@dataclasses.dataclass(frozen=True)
class Observation:
    """What is seen of a migration now.

    :ivar time: seconds since its start
    :ivar link_rate: bytes/s, 0 if not known yet
    :ivar dirty_rate: bytes/s, 0 in the first round
    :ivar remaining: bytes of pages the link has to send yet
    :ivar outstanding: bytes of pages that storage is to deliver yet
    :ivar storage_rate: bytes/s the destination reads
    :ivar backlog: records that wait there
    :ivar fetched: pages that storage has delivered
    :ivar nacks: pages that it could not deliver
    :ivar resent: pages the link has sent because storage was slower
    :ivar active: whether records are being sent
    """

    time: float
    link_rate: float = 0.0
    dirty_rate: float = 0.0
    remaining: float = 0.0
    outstanding: float = 0.0
    storage_rate: float = 0.0
    backlog: int = 0
    fetched: int = 0
    nacks: int = 0
    resent: int = 0
    active: bool = True


@dataclasses.dataclass(frozen=True)
class Decision:
    """What to do.

    :ivar action: KEEP or DISARM
    :ivar reason: why, for the report; '' for KEEP
    :ivar left: seconds until the end as things are, infinite if it does
        not get there
    """

    action: str
    reason: str = ''
    left: float | None = None


def observe(progress, time):
    """Return the Observation of a look.

    :param progress: hypervisor.progress.Progress
    :param time: seconds since the start
    """
    page = progress.page_size
    common = {'time': time, 'link_rate': progress.mbps * 1e6 / 8,
              'dirty_rate': float(progress.dirty_pages_per_s * page),
              'remaining': float(progress.remaining_bytes)}
    source = progress.dedup.source if progress.dedup is not None else None
    if source is None:
        return Observation(active=False, **common)
    return Observation(
        outstanding=float(source.outstanding * page),
        storage_rate=float(source.peer_read_rate),
        backlog=source.peer_backlog, fetched=source.storage_pages,
        nacks=source.nack_digest + source.nack_io,
        resent=source.resent_pages, active=source.state == 'active',
        **common)


def replan(plan, given, now):
    """Return the Decision.

    :param plan: plan.Plan in force
    :param given: Facts it was made of
    :param now: Observation
    """
    left = _left(given, now)
    if plan.strategy == planner_plan.STOCK or not now.active:
        return Decision(KEEP, left=left)
    reason = _reason(now)
    return Decision(DISARM if reason else KEEP, reason, left)


def _reason(now):
    """Return why asking storage is no use, '' if it is."""
    ended = now.fetched + now.resent
    if ended >= _EVIDENCE and now.fetched < _HELP * ended:
        return ('the storage of the destination delivered %s of the pages '
                'only; the link was faster with the rest'
                % units.percent(now.fetched / ended))
    return ''


def _left(given, now):
    known = normal.normal(given)
    link = normal.rate(now.link_rate) or predict.link_rate(known)
    dirty = (normal.number(now.dirty_rate, normal.MAX_RATE)
             or predict.dirty_rate(known))
    time = normal.number(now.time, normal.MAX_TIME)
    timeout = known.options.timeout
    outcome = model.migrate(model.Case(
        unique=normal.number(now.remaining, known.guest.memory),
        duplicate=normal.number(now.outstanding, known.guest.memory),
        zero=0.0, link=link, final_link=link,
        storage=normal.number(now.storage_rate, predict.VERIFY),
        dirty_rate=dirty, page_size=known.guest.page_size,
        downtime=predict.downtime(known.options, time),
        postcopy=known.options.postcopy,
        auto_converge=known.options.auto_converge,
        timeout=None if timeout is None else max(0.0, timeout - time),
        force_complete=known.options.force_complete))
    return outcome.time
