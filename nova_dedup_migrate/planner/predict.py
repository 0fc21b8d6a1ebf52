# SPDX-License-Identifier: Apache-2.0
"""Predictions: facts -> the model's cases -> a band.

A fact is not the truth about the minutes to come.  So the model runs
three times: with likely values, and with all of them a little better and
a good deal worse.  The tables below say how much, and which values stand
in for facts that are not known.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import math

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import model
from nova_dedup_migrate.planner import plan

#: A link whose rate is not known: 1 Gbit/s.
DEFAULT_LINK = 125e6
#: Storage whose rate is not known.
DEFAULT_STORAGE = 100e6
#: One thread of QEMU, without and with TLS; multifd has more of them.
SENDER = 2e9
TLS_SENDER = 0.4e9
#: The destination: reading, verifying, placing.
VERIFY = 0.8e9
#: A thread that compresses with zstd -1, of what goes in.
COMPRESS = 0.4e9
#: Threads that a migration may take; QEMU's own limit is higher.
MOST_THREADS = 4

#: Bytes of a QEMU process that are not the guest's memory, if only its RSS
#: is known.
OWN = 64e6
#: What the model itself leaves out, as a share.
_MARGIN = 0.03


@dataclasses.dataclass(frozen=True)
class _Assumption:
    """Factors on facts.

    measured: the link, if it was measured; configured: if only a limit is
    known; unknown: if nothing is known; storage, storage_unknown:
    likewise; scattered: share of the bytes on storage that are single
    blocks, far apart; valid: share of the hints that still hold, if no
    sample says it, and sampled: a factor on the sample's; dirty: how much
    more a guest dirties while it is migrated than before; errors: how many
    standard errors more memory is in use than estimated; in_use: share of
    the memory touched by QEMU that is not zero, if that was not sampled,
    and own: how many times OWN is subtracted from it; working_set: share
    of memory in use that the guest writes to again and again; left,
    devices: see model.Case; switch_over: a factor on
    facts.Options.switch_over; compressed: a factor on the share that a
    sample found to remain
    """

    measured: float
    configured: float
    unknown: float
    storage: float
    storage_unknown: float
    scattered: float
    valid: float
    sampled: float
    dirty: float
    errors: float
    in_use: float
    own: float
    working_set: float
    left: float
    devices: float
    switch_over: float
    compressed: float


#: QEMU sends about 5 % more than its limit says; the shared storage
#: benchmarks show it for stock and for ours.  The writers of the benchmarks
#: dirty as much while they are migrated as before; others were seen to
#: dirty up to three times as much.
_LIKELY = _Assumption(measured=1.0, configured=1.05, unknown=1.0,
                      storage=0.9, storage_unknown=1.0, scattered=0.05,
                      valid=0.99, sampled=1.0, dirty=1.2, errors=0.0,
                      in_use=1.0, own=1.0, working_set=0.25, left=0.5,
                      devices=0.02, switch_over=1.0, compressed=1.05)
_BETTER = _Assumption(measured=1.1, configured=1.1, unknown=10.0,
                      storage=1.0, storage_unknown=10.0, scattered=0.0,
                      valid=1.0, sampled=1.05, dirty=0.7, errors=-2.0,
                      in_use=0.9, own=1.5, working_set=0.1, left=0.0,
                      devices=0.005, switch_over=0.3, compressed=0.7)
_WORSE = _Assumption(measured=0.85, configured=0.85, unknown=0.1,
                     storage=0.4, storage_unknown=0.1, scattered=0.5,
                     valid=0.7, sampled=0.85, dirty=3.0, errors=2.0,
                     in_use=1.0, own=0.0, working_set=1.0, left=1.0,
                     devices=0.06, switch_over=2.5, compressed=1.6)


def predict(known: facts.Facts, disks: Sequence[facts.Disk] = (),
            max_downtime_ms: float = math.inf,
            threads: int = 0) -> plan.Prediction:
    """Return plan.Prediction.

    :param known: normal Facts
    :param disks: those of known.disks that are read from storage; none
        is a stock migration
    :param max_downtime_ms: the highest limit that adapt_downtime_limit
        may lead to
    :param threads: that compress what goes through the link, 0: none
    """
    outcomes = [model.migrate(_case(known, disks, assumed, max_downtime_ms,
                                    threads))
                for assumed in (_BETTER, _LIKELY, _WORSE)]
    likely = outcomes[1]
    return plan.Prediction(
        bytes=_band(outcomes, 'bytes'), time=_band(outcomes, 'time'),
        downtime=_band(outcomes, 'downtime'),
        converges=likely.end == model.PRECOPY, end=likely.end,
        storage_bytes=likely.storage_bytes, disk_bytes=likely.disk_bytes,
        disk_time=likely.disk_time)


def threads(known: facts.Facts) -> int:
    """Return how many may compress: what the source has idle, at least 1."""
    idle = known.source.processors
    return max(1, min(MOST_THREADS, int(idle or 0)))


def duplicate_bytes(known: facts.Facts,
                    disks: Sequence[facts.Disk]) -> float:
    """Return how much memory is likely to be left to these disks."""
    return _duplicates(known, disks, _LIKELY)


def dirty_rate(known: facts.Facts) -> float:
    """Return bytes/s while the guest is migrated, as is likely."""
    return known.guest.dirty_rate * _LIKELY.dirty


def working_set(known: facts.Facts) -> float:
    """Return the bytes the guest writes to again and again, as is likely."""
    return _working_set(known, _LIKELY)


def memory(known: facts.Facts, disks: Sequence[facts.Disk]
           ) -> tuple[float, float, float]:
    """Return the likely bytes that are unique, duplicate and zero."""
    return _memory(known, disks, _LIKELY)


def storage(known: facts.Facts, disks: Sequence[facts.Disk]) -> float:
    """Return bytes/s at which these disks are read, as is likely."""
    return _storage(known, disks, _LIKELY)


def link_rate(known: facts.Facts) -> float:
    """Return bytes/s while the guest runs, as is likely."""
    return _link(known, _LIKELY)[0]


def storage_rate(disks: Iterable[facts.Disk], scattered: float = 0.0,
                 factor: float = 1.0) -> float | None:
    """Return bytes/s at which the destination reads; None: not known.

    One disk is read after the other, so it is a harmonic mean, by the
    pages that are read from each, or else by size.

    :param scattered: share of the bytes in single blocks, far apart
    :param factor: on the rates of reading in sequence
    """
    found = [(disk, disk.storage_rate * factor) for disk in disks
             if disk.storage_rate]
    if not found:
        return None
    by_pages = all(disk.hint_pages is not None for disk, _ in found)
    total = seconds = 0.0
    for disk, rate in found:
        weight = float((disk.hint_pages if by_pages else disk.size) or 1.0)
        # to read single blocks is never the faster way
        slow = min(disk.scattered_rate or rate, rate)
        total += weight
        seconds += weight * ((1 - scattered) / rate + scattered / slow)
    return total / seconds


def _band(outcomes: Sequence[model.Outcome], name: str) -> plan.Band:
    values = [getattr(outcome, name) for outcome in outcomes]
    return plan.Band(min(values) * (1 - _MARGIN), values[1],
                     max(values) * (1 + _MARGIN))


def _case(known: facts.Facts, disks: Sequence[facts.Disk],
          assumed: _Assumption, max_downtime_ms: float,
          threads: int) -> model.Case:
    guest, options = known.guest, known.options
    unique, duplicate, zero = _memory(known, disks, assumed)
    link, final_link = _link(known, assumed)
    share, compressed = _compression(known, assumed, threads)
    to_copy = (sum(disk.to_copy for disk in known.disks)
               if options.block_migration else 0.0)
    written = guest.disk_write_rate or 0.0
    dirty_rate = guest.dirty_rate * assumed.dirty
    return model.Case(
        unique=unique, duplicate=duplicate, zero=zero, link=link,
        final_link=final_link, storage=_storage(known, disks, assumed),
        dirty_rate=dirty_rate, page_size=guest.page_size,
        working_set=_working_set(known, assumed),
        dirty_duplicate=(min(written / dirty_rate, 1.0)
                         if disks and dirty_rate else 0.0),
        downtime=downtime(options),
        extra_downtime=extra_downtime(options),
        max_downtime=min(options.downtime_ms, max_downtime_ms) / 1000,
        left=assumed.left,
        devices=(assumed.devices
                 + options.switch_over * assumed.switch_over),
        postcopy=options.postcopy,
        auto_converge=options.auto_converge, timeout=options.timeout,
        force_complete=options.force_complete, disk_bytes=to_copy,
        disk_write_rate=written, share=share, compressed_rate=compressed)


def _compression(known: facts.Facts, assumed: _Assumption,
                 threads: int) -> tuple[float, float]:
    """Return the share that remains, and bytes/s that are compressed.

    Threads get no more processors than are idle at either host; the
    destination needs a third of what the source does.
    """
    share = known.guest.compressed_share
    if not threads or share is None:
        return 1.0, math.inf
    ends = [float(threads)]
    if known.source.processors is not None:
        ends.append(max(known.source.processors, 0.25))
    if known.destination.processors is not None:
        ends.append(3 * max(known.destination.processors, 0.25))
    return min(1.0, share * assumed.compressed), COMPRESS * min(ends)


def extra_downtime(options: facts.Options) -> float:
    """Return seconds for model.Case."""
    if not options.adapt_downtime_limit:
        return 0.0
    return options.max_extra_downtime_ms / 1000


def _memory(known: facts.Facts, disks: Sequence[facts.Disk],
            assumed: _Assumption) -> tuple[float, float, float]:
    duplicate = _duplicates(known, disks, assumed)
    in_use = max(_in_use(known.guest, assumed), duplicate)
    return (in_use - duplicate, duplicate,
            max(0.0, known.guest.memory - in_use))


def _working_set(known: facts.Facts, assumed: _Assumption) -> float:
    # More than it writes to in the second in which it was measured.
    return max(_in_use(known.guest, assumed) * assumed.working_set,
               2 * known.guest.dirty_rate)


def _in_use(guest: facts.Guest, assumed: _Assumption) -> float:
    """Return the bytes of memory that are not zero."""
    if guest.in_use is None:
        return guest.resident * assumed.in_use - OWN * assumed.own
    return min(guest.in_use + assumed.errors * guest.in_use_error,
               guest.memory)


def _duplicates(known: facts.Facts, disks: Sequence[facts.Disk],
                assumed: _Assumption) -> float:
    """Return the bytes of memory that these disks hold."""
    if not disks:
        return 0.0
    guest = known.guest
    pages = (_pages_by_disk(known, disks, assumed)
             if all(disk.hint_pages is not None for disk in known.disks)
             else _pages_by_size(known, disks, assumed))
    return min(pages * guest.page_size,
               guest.resident if guest.in_use is None else guest.in_use)


def _pages_by_disk(known: facts.Facts, disks: Sequence[facts.Disk],
                   assumed: _Assumption) -> float:
    """The page cache that the guest lists may come after the counting.

    It lists pages of disks that can be read, and those are clean.
    """
    guest = known.guest
    counted = sum(disk.hint_pages or 0 for disk in known.disks)
    listed = min(max(0, guest.hint_pages - counted), guest.map_pages)
    return listed * assumed.valid + sum(
        (disk.hint_pages or 0) * _valid(guest, disk, assumed)
        for disk in disks)


def _pages_by_size(known: facts.Facts, disks: Sequence[facts.Disk],
                   assumed: _Assumption) -> float:
    """It is not known which disk hints are of: by size, then."""
    of_all = sum(disk.size for disk in known.disks)
    if all(disk in disks for disk in known.disks):
        share = 1.0
    elif of_all:
        share = sum(disk.size for disk in disks) / of_all
    else:
        share = len(disks) / len(known.disks)
    return (known.guest.hint_pages * share
            * _valid(known.guest, None, assumed))


def _valid(guest: facts.Guest, disk: facts.Disk | None,
           assumed: _Assumption) -> float:
    """Return the share of the hints that hold."""
    share = guest.valid_share
    if disk is not None and disk.valid_share is not None:
        share = disk.valid_share
    if share is None:
        return assumed.valid
    return min(1.0, share * assumed.sampled)


def _link(known: facts.Facts, assumed: _Assumption) -> tuple[float, float]:
    """Return the rates while the guest runs, and in its downtime.

    What the network carries is shared with other migrations;
    live_migration_bandwidth is a limit of each one of them.
    """
    link, options = known.link, known.options
    ours = assumed.measured / (1 + link.sharers)
    network = [rate * ours for rate in (link.measured, link.host_limit)
               if rate]
    limit = [link.configured * assumed.configured] if link.configured else []
    sender = ((TLS_SENDER if options.tls else SENDER)
              * max(1, options.multifd_channels))
    running = min(network + limit, default=(
        DEFAULT_LINK * assumed.unknown / (1 + link.sharers)))
    return (min(running, sender),
            min(max(network, default=running), sender))


def _storage(known: facts.Facts, disks: Sequence[facts.Disk],
             assumed: _Assumption) -> float:
    rate = (storage_rate(disks, assumed.scattered, assumed.storage)
            or DEFAULT_STORAGE * assumed.storage_unknown)
    return min(rate / (1 + known.link.sharers), VERIFY)


def downtime(options: facts.Options, time: float = 0.0
             ) -> tuple[tuple[float, float], ...]:
    """Return ((since, limit), ...) in seconds for model.Case.

    :param time: since is counted from so many seconds after the start
    """
    steps = options.downtime_steps or ((0.0, options.downtime_ms),)
    return tuple((max(0.0, since - time), limit / 1000)
                 for since, limit in sorted(steps))


def saves(prediction: plan.Prediction, stock: plan.Prediction) -> float:
    """Return the share of stock's time that is saved, negative if none.

    A migration that completes saves all of one that does not.  If neither
    completes, it is the share of the moved bytes that storage moves.
    """
    if prediction.completes != stock.completes:
        return 1.0 if prediction.completes else -1.0
    if prediction.completes:
        ours, theirs = prediction.time.likely, stock.time.likely
        return 1.0 - ours / theirs if theirs else 0.0
    moved = prediction.bytes.likely + prediction.storage_bytes
    if math.isinf(moved):
        return 1.0 if prediction.storage_bytes else 0.0
    return prediction.storage_bytes / moved if moved else 0.0
