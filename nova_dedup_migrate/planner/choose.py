# SPDX-License-Identifier: Apache-2.0
"""What a migration leaves out, if anything."""

import collections
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import math

from nova_dedup_migrate.planner import explain
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.planner import units

#: Share of the time that something more must save to be worth its cost.
_WORTH = 0.02
#: Memory that compresses to more than that is not worth a try.
_COMPRESSIBLE = 0.85


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A way to leave pages out, to compress them, or both.

    :ivar disks: facts.Disk whose content is left out
    :ivar threads: that compress, 0: none
    :ivar max_downtime_limit_ms: see plan.Plan
    """

    disks: tuple[facts.Disk, ...]
    threads: int
    prediction: plan.Prediction
    max_downtime_limit_ms: float | None


def choose(given: facts.Facts) -> plan.Plan:
    """Return the Plan for Facts; whatever they are, it does not raise.

    The migration is an ordinary one unless leaving pages out, or
    compressing them, is predicted to save min_gain of its time, or, with a
    strategy that was set by name, not to be slower; and unless it is
    predicted to keep the guest stopped for longer than max_extra_downtime
    permits.
    """
    known = normal.normal(given)
    unbuilt = _unavailable(known)
    stock = predict.predict(known)
    reason = _obstacle(known)
    if reason:
        return _stock(known, (), stock, None, _join(unbuilt, reason))
    disks, nothing = _left_out(known)
    plain = _uncompressed(known)
    found = list(_candidates(known, disks if not nothing else (),
                             not plain, stock))
    if not found:
        return _stock(known, disks, stock, None,
                      _join(unbuilt, nothing, plain
                            if known.options.strategy == plan.COMPRESS
                            else ''))
    best = None
    objections = []
    for one in found:
        objection = _objection(one, stock, known.options)
        objections.append(objection)
        if not objection and (best is None
                              or _better(one, best, known.options)):
            best = one
    if best is not None:
        return _chosen(known, stock, best, unbuilt)
    return _stock(known, found[0].disks, stock, found[0],
                  _join(unbuilt, nothing if disks else '', objections[0]))


def _better(one: _Candidate, other: _Candidate,
            options: facts.Options) -> bool:
    """Whether a candidate is worth what it needs more than an earlier one.

    Candidates come in the order of what they need.  The second of the two
    with the same disks and threads differs in its downtime limits alone,
    and counts if the first is no good.
    """
    if (one.disks, bool(one.threads)) == (other.disks, bool(other.threads)):
        return False
    gain = predict.saves(one.prediction, other.prediction)
    if (one.threads and not other.threads and one.disks == other.disks
            and options.compression == 'zstd'):
        return gain >= 0
    return gain > _WORTH


def _candidates(known: facts.Facts, disks: tuple[facts.Disk, ...],
                compress: bool, stock: plan.Prediction
                ) -> Iterator[_Candidate]:
    """Yield candidates, those that need the least first."""
    strategy, threads = known.options.strategy, predict.threads(known)
    if disks:
        yield from _limits(known, disks, 0, stock)
        if compress:
            yield from _limits(known, disks, threads, stock)
    if compress and (not disks or strategy == 'auto'):
        yield from _limits(known, (), threads, stock)


def _limits(known: facts.Facts, disks: tuple[facts.Disk, ...], threads: int,
            stock: plan.Prediction) -> Iterator[_Candidate]:
    """Yield a candidate with adapted downtime limits, and with Nova's."""
    options = known.options
    if options.adapt_downtime_limit:
        most = options.downtime_ms
        if stock.completes:
            most = min(most, stock.downtime.likely * 1000
                       + options.max_extra_downtime_ms)
        yield _Candidate(disks, threads,
                         predict.predict(known, disks, most, threads), most)
    plain = dataclasses.replace(options, adapt_downtime_limit=False)
    yield _Candidate(
        disks, threads,
        predict.predict(dataclasses.replace(known, options=plain), disks,
                        threads=threads),
        None)


def _chosen(known: facts.Facts, stock: plan.Prediction,
            candidate: _Candidate, unbuilt: str) -> plan.Plan:
    prediction, disks = candidate.prediction, candidate.disks
    copy = collections.Counter(disk.copy for disk in disks).most_common(1)
    strategy = (plan.COMPRESS if not disks
                else plan.PAGE_CACHE if known.guest.map_pages
                else plan.SHARED_NAS)
    gain = predict.saves(prediction, stock)
    return plan.Plan(
        strategy=strategy, prediction=prediction, stock=stock,
        copy=copy[0][0] if copy else facts.SHARED,
        disks=(_exceptions(known.disks, disks, copy[0][0]) if copy else ()),
        max_downtime_limit_ms=candidate.max_downtime_limit_ms,
        fetch_rate=_fetch_rate(known.options, disks),
        fetch_iops=known.options.fetch_iops,
        fetch_in_postcopy=known.options.fetch_in_postcopy,
        defer_redirtied_pages=known.options.defer_redirtied_pages,
        compression_threads=candidate.threads, reason=unbuilt,
        explanation=explain.explain(
            known, disks, stock, prediction,
            _sentence(unbuilt)
            + explain.chosen(strategy, gain, stock, prediction,
                             candidate.threads),
            candidate.threads))


def _fetch_rate(options: facts.Options, disks: Sequence[facts.Disk]) -> int:
    """Return bytes/s the destination may read, 0: as it can."""
    if options.fetch_rate or options.fetch_share >= 1:
        return options.fetch_rate
    return int(options.fetch_share * (predict.storage_rate(disks) or 0))


def _unavailable(known: facts.Facts) -> str:
    """Return why the strategy that was set cannot be used, '' if it can."""
    strategy = known.options.strategy
    if strategy == 'page_cache' and not known.guest.map_pages:
        return 'page_cache is not available: ' + known.guest.map_reason
    if strategy == 'snapshot':
        return ('snapshot is not available: this release does not rebuild '
                'disks from backups')
    return ''


def _obstacle(known: facts.Facts) -> str:
    """Return why the migration has to be an ordinary one, '' if not."""
    strategy = known.options.strategy
    if strategy == 'off':
        return 'strategy off is set in %s' % (known.options.strategy_source
                                              or 'nova.conf')
    if strategy not in facts.STRATEGIES:
        return 'strategy %.40r is unknown; valid are %s' % (
            strategy, ', '.join(facts.STRATEGIES))
    for end in (known.source, known.destination):
        if not end.patched:
            return 'host %s cannot leave pages out: %s' % (
                end.host, end.reason or 'its QEMU is not the patched one')
    return ''


def _left_out(known: facts.Facts) -> tuple[tuple[facts.Disk, ...], str]:
    """Return the disks that can be read, and why that is no use, or ''."""
    disks = tuple(disk for disk in known.disks
                  if disk.copy != facts.NONE and disk.device)
    if known.options.strategy == plan.COMPRESS:
        return (), 'strategy compress leaves nothing out'
    if not known.disks:
        return disks, 'the instance has no disks'
    if not disks:
        return disks, 'host %s cannot read any of the disks: %s' % (
            known.destination.host,
            known.disks[0].reason or 'no reason was given')
    if not known.guest.hint_pages:
        return disks, (
            'QEMU has not recorded any I/O of the guest. If the guest '
            'does use its disks, check track_io and the log of '
            'nova-compute on host %s' % known.source.host)
    if not predict.duplicate_bytes(known, disks):
        return disks, (
            'guest memory holds no content of the disks that host %s '
            'can read' % known.destination.host)
    return disks, ''


def _uncompressed(known: facts.Facts) -> str:
    """Return why nothing is compressed, '' if it may be."""
    options, share = known.options, known.guest.compressed_share
    if options.compression == 'off':
        return 'compression off is set in %s' % (options.compression_source
                                                 or 'nova.conf')
    if share is None:
        return ('how well the memory compresses is not known: the QEMU of '
                'the instance is of an older release, or the guest uses '
                'too little memory for a sample')
    if share >= _COMPRESSIBLE:
        return 'the memory does not compress'
    return ''


def _objection(candidate: _Candidate, stock: plan.Prediction,
               options: facts.Options) -> str:
    """Return why an ordinary migration is better, '' if it is not.

    If stock does not complete there is nothing to lose.
    """
    prediction = candidate.prediction
    gain = predict.saves(prediction, stock)
    if gain <= 0:
        return ('leaving pages out would not be faster' if candidate.disks
                else 'compressing pages would not be faster')
    if not stock.completes:
        return ''
    if options.strategy == 'auto' and gain < options.min_gain:
        return (('leaving pages out would save only %s of the time; '
                 'min_gain is %s' if candidate.disks else
                 'compressing pages would save only %s of the time; '
                 'min_gain is %s')
                % (units.percent(gain), units.percent(options.min_gain)))
    ours, theirs = prediction.downtime.likely, stock.downtime.likely
    extra = options.max_extra_downtime_ms / 1000
    if math.isfinite(theirs) and ours > theirs + extra:
        return (('leaving pages out would stop the guest for %s, an '
                 'ordinary migration for %s; max_extra_downtime permits %s '
                 'more' if candidate.disks else
                 'compressing pages would stop the guest for %s, an '
                 'ordinary migration for %s; max_extra_downtime permits %s '
                 'more')
                % tuple(map(units.milliseconds, (ours, theirs, extra))))
    return ''


def _stock(known: facts.Facts, disks: Sequence[facts.Disk],
           stock: plan.Prediction, rejected: _Candidate | None,
           reason: str) -> plan.Plan:
    options = known.options
    adapted = options.adapt_downtime_limit and options.strategy != 'off'
    return plan.Plan(
        strategy=plan.STOCK, prediction=stock, stock=stock, reason=reason,
        max_downtime_limit_ms=options.downtime_ms if adapted else None,
        explanation=explain.explain(
            known, disks, stock,
            rejected.prediction if rejected is not None else None,
            'Chosen: an ordinary migration. ' + _sentence(reason).rstrip(),
            rejected.threads if rejected is not None else 0))


def _exceptions(disks: Sequence[facts.Disk], usable: Sequence[facts.Disk],
                copy: str) -> tuple[plan.PlanDisk, ...]:
    """Return the PlanDisks that differ from the default."""
    return tuple(
        plan.PlanDisk(disk.device, disk.copy, True) if disk in usable
        else plan.PlanDisk(disk.device, copy, False)
        for disk in disks
        if disk.device and (disk not in usable or disk.copy != copy))


def _join(*reasons: str) -> str:
    return '; '.join(filter(None, reasons))


def _sentence(reason: str) -> str:
    return reason[:1].upper() + reason[1:] + '. ' if reason else ''
