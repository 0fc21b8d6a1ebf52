# SPDX-License-Identifier: Apache-2.0
"""While a migration runs: whether the plan still holds, and the time left.

QEMU itself keeps storage from holding a migration up: it sends the pages
that storage does not deliver in time, and sends no more records if more
of them are refused than used (qemu/src/migration/dedup/source-answers.c).
It does not know whether reading is any help: the destination's storage is
busy with it, and others use that storage.  That is decided here, from all
that storage has delivered so far, and never from a single bad moment.

Some guests dirty two to three times as much while they are migrated as
before, so the time left is predicted anew from the rates seen now.
"""

import dataclasses
import math
from typing import Any

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import model
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.planner import units

KEEP = 'keep'
DISARM = 'disarm'

#: Pages that must have come to an end before they count as evidence.
_EVIDENCE = 4096
#: If storage delivers less than that share of them, it is no help.
_HELP = 0.05
#: No memory is taken to compress better.
_LEAST_SHARE = 0.01


@dataclasses.dataclass(frozen=True)
class Observation:
    """A migration now.

    :ivar time: seconds since its start
    :ivar rounds: passes over memory that have begun; 0: disks are still
        copied, or it has hardly started
    :ivar link_rate: bytes/s, 0 if not known yet
    :ivar dirty_rate: bytes/s, 0 in the first round
    :ivar remaining: bytes of pages that are still to be sent
    :ivar disk_remaining: bytes of disks that are still to be copied
    :ivar sent: bytes of pages sent as content, so far
    :ivar zero: bytes of pages sent as zero, so far
    :ivar recorded: bytes of pages sent as records, so far
    :ivar outstanding: bytes of pages that storage has yet to deliver
    :ivar storage_rate: bytes/s the destination reads
    :ivar backlog: records that wait there
    :ivar fetched: pages that storage has delivered
    :ivar nacks: pages that it could not deliver
    :ivar resent: pages the link has sent because storage was slower
    :ivar share: bytes on the link for a byte of page content; 1: nothing
        is compressed
    :ivar active: whether records are being sent
    :ivar postcopy: whether the guest runs at the destination already
    """

    time: float
    rounds: int = 0
    link_rate: float = 0.0
    dirty_rate: float = 0.0
    remaining: float = 0.0
    disk_remaining: float = 0.0
    sent: float = 0.0
    zero: float = 0.0
    recorded: float = 0.0
    outstanding: float = 0.0
    storage_rate: float = 0.0
    backlog: int = 0
    fetched: int = 0
    nacks: int = 0
    resent: int = 0
    share: float = 1.0
    active: bool = True
    postcopy: bool = False


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
    left: float = math.inf


def observe(progress: Any, time: float,
            data_remaining: float | None = None) -> Observation:
    """Return the Observation of a look.

    :param progress: hypervisor.progress.Progress
    :param time: seconds since the start
    :param data_remaining: of libvirt's job: bytes of memory and of disks
        that are still to be copied; None if it is not known
    """
    page = progress.page_size
    remaining = float(progress.remaining_bytes)
    common: dict[str, Any] = {
        'time': time, 'rounds': progress.rounds,
        'postcopy': progress.status.startswith('postcopy'),
        'link_rate': progress.mbps * 1e6 / 8,
        'dirty_rate': float(progress.dirty_pages_per_s * page),
        'remaining': remaining,
        # libvirt counts memory in it from the first round on
        'disk_remaining': max(0.0, (data_remaining or 0.0) - remaining),
        'sent': float(progress.pages.peer * page),
        'zero': float(progress.pages.zero * page)}
    source = progress.dedup.source if progress.dedup is not None else None
    if source is None:
        return Observation(active=False, **common)
    return Observation(
        recorded=float(source.record_pages * page),
        outstanding=float(source.outstanding * page),
        storage_rate=float(source.peer_read_rate),
        backlog=source.peer_backlog, fetched=source.storage_pages,
        nacks=source.nack_digest + source.nack_io,
        resent=source.resent_pages, active=source.state == 'active',
        share=_share(source, progress.pages.peer, page),
        **common)


def _share(source: Any, peer: int, page: int) -> float:
    """Return bytes on the link for a byte of content, 1 if not known."""
    pages = min(source.compressed_pages, peer)
    if not pages:
        return 1.0
    plain = (peer - pages) * page
    return min(1.0, (source.compressed_bytes + plain) / (peer * page))


def replan(plan: planner_plan.Plan, given: facts.Facts,
           now: Observation) -> Decision:
    """Return the Decision.

    :param plan: plan.Plan in force
    :param given: Facts it was made of
    :param now: Observation
    """
    left = _left(plan, given, now)
    if plan.strategy == planner_plan.STOCK or not now.active:
        return Decision(KEEP, left=left)
    reason = _reason(now)
    return Decision(DISARM if reason else KEEP, reason, left)


def progress(plan: planner_plan.Plan | None, given: facts.Facts | None,
             now: Observation) -> tuple[float, float]:
    """Return how far a migration is, 0 to 1, and the seconds left.

    The share is that of the time.  It goes back if the migration turns out
    to take longer.  If it is not expected to end, the seconds are infinite
    and the share is that of the bytes.

    :param plan: plan.Plan in force, None if there is none
    :param given: Facts it was made of, None if there are none: then what
        remains is divided by the rate of the link
    """
    if plan is None or given is None:
        left = _plain(now)
    else:
        left = _left(plan, given, now)
    time = normal.number(now.time, normal.MAX_TIME)
    if math.isfinite(left):
        return (time / (time + left) if time + left > 0 else 0.0), left
    done = (normal.number(now.sent, normal.MAX_BYTES)
            + normal.number(now.zero, normal.MAX_BYTES)
            + normal.number(now.fetched, normal.MAX_BYTES) * 4096)
    rest = (normal.number(now.remaining, normal.MAX_BYTES)
            + normal.number(now.outstanding, normal.MAX_BYTES)
            + normal.number(now.disk_remaining, normal.MAX_BYTES))
    return (done / (done + rest) if done + rest > 0 else 0.0), left


def _plain(now: Observation) -> float:
    """Return the seconds left if nothing but the rate is known."""
    rate = normal.rate(now.link_rate)
    share = normal.share(now.share)
    rest = (normal.number(now.remaining, normal.MAX_BYTES)
            * (1.0 if share is None else share)
            + normal.number(now.disk_remaining, normal.MAX_BYTES))
    return rest / rate if rate and (now.rounds or rest) else math.inf


def _reason(now: Observation) -> str:
    """Return why storage is no use, '' if it is."""
    ended = now.fetched + now.resent
    if ended >= _EVIDENCE and now.fetched < _HELP * ended:
        return ('the storage of the destination delivered only %s of the '
                'pages; the link was faster with the rest'
                % units.percent(now.fetched / ended))
    return ''


def _left(plan: planner_plan.Plan, given: facts.Facts,
          now: Observation) -> float:
    known = normal.normal(given)
    time = normal.number(now.time, normal.MAX_TIME)
    link = normal.rate(now.link_rate) or predict.link_rate(known)
    disks = normal.number(now.disk_remaining, normal.MAX_BYTES)
    if not now.rounds:
        return _before_memory(plan, disks, link, time)
    dirty = (normal.number(now.dirty_rate, normal.MAX_RATE)
             or predict.dirty_rate(known))
    unique, duplicate, zero = _memory_left(plan, known, now)
    if now.postcopy:
        # what is sent in post-copy is not compressed
        return (unique + duplicate) / link
    options = known.options
    outcome = model.migrate(model.Case(
        unique=unique, duplicate=duplicate, zero=zero, link=link,
        final_link=link,
        storage=(normal.number(now.storage_rate, predict.VERIFY)
                 or predict.storage(known, _disks(known))),
        dirty_rate=dirty, page_size=known.guest.page_size,
        working_set=predict.working_set(known),
        downtime=predict.downtime(options, time),
        extra_downtime=(0.0 if plan.max_downtime_limit_ms is None
                        else predict.extra_downtime(options)),
        postcopy=options.postcopy,
        auto_converge=options.auto_converge,
        timeout=(None if options.timeout is None
                 else max(0.0, options.timeout - time)),
        force_complete=options.force_complete, begun=True,
        share=_expected_share(plan, known, now)))
    return outcome.time + disks / link


def _expected_share(plan: planner_plan.Plan, known: facts.Facts,
                    now: Observation) -> float:
    """As seen so far; before anything was compressed, as the plan has it."""
    seen = normal.share(now.share)
    if seen is not None and seen < 1.0:
        return max(seen, _LEAST_SHARE)
    if plan.compression_threads and now.active and not now.sent:
        return known.guest.compressed_share or 1.0
    return 1.0


def _before_memory(plan: planner_plan.Plan, disks: float, link: float,
                   time: float) -> float:
    """Disks first, then memory as predicted."""
    expected = plan.prediction
    if not math.isfinite(expected.time.likely):
        return math.inf
    memory = max(0.0, expected.time.likely - expected.disk_time)
    if disks:
        return disks / link + memory
    # Nothing says how far the disks are.
    return max(memory, expected.time.likely - time)


def _disks(known: facts.Facts) -> tuple[facts.Disk, ...]:
    return tuple(disk for disk in known.disks
                 if disk.copy != facts.NONE and disk.device)


def _memory_left(plan: planner_plan.Plan, known: facts.Facts,
                 now: Observation) -> tuple[float, float, float]:
    """Return bytes that the link sends, that storage delivers, zeros.

    In the first round QEMU has not yet read most of the memory that
    remains: part of it is zero, and part of it will go as records.  From
    the second round on the pages that remain are those the guest has
    written to.
    """
    most = known.guest.memory
    remaining = normal.number(now.remaining, most)
    outstanding = normal.number(now.outstanding, most)
    if now.rounds > 1:
        return remaining, outstanding, 0.0
    leaves_out = now.active and plan.strategy not in (
        planner_plan.STOCK, planner_plan.COMPRESS)
    shares = predict.memory(known, _disks(known) if leaves_out else ())
    rest = [max(0.0, share - normal.number(done, most))
            for share, done in zip(shares, (now.sent, now.recorded, now.zero),
                                   strict=True)]
    total = sum(rest)
    if not total:
        return remaining, outstanding, 0.0
    unique, duplicate, zero = (part / total * remaining for part in rest)
    return unique, duplicate + outstanding, zero
