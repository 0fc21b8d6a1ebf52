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


@dataclasses.dataclass(frozen=True)
class _Candidate:
    """A way to leave pages out.

    :ivar max_downtime_limit_ms: see plan.Plan
    """

    prediction: plan.Prediction
    max_downtime_limit_ms: float | None


def choose(given: facts.Facts) -> plan.Plan:
    """Return the Plan for Facts; whatever they are, it does not raise.

    The migration is an ordinary one unless leaving pages out is predicted
    to save min_gain of its time, or, with a strategy that was set by name,
    not to be slower; and unless it is predicted to keep the guest stopped
    for longer than max_extra_downtime permits.
    """
    known = normal.normal(given)
    unbuilt = _unavailable(known)
    stock = predict.predict(known)
    disks = tuple(disk for disk in known.disks
                  if disk.copy != facts.NONE and disk.device)
    reason = _obstacle(known, disks)
    if reason:
        return _stock(known, disks, stock, None, _join(unbuilt, reason))
    found = list(_candidates(known, disks, stock))
    objections = [_objection(one.prediction, stock, known.options)
                  for one in found]
    for one, objection in zip(found, objections, strict=True):
        if not objection:
            return _chosen(known, disks, stock, one, unbuilt)
    return _stock(known, disks, stock, found[0].prediction,
                  _join(unbuilt, objections[0]))


def _candidates(known: facts.Facts, disks: Sequence[facts.Disk],
                stock: plan.Prediction) -> Iterator[_Candidate]:
    options = known.options
    if options.adapt_downtime_limit:
        most = options.downtime_ms
        if stock.completes:
            most = min(most, stock.downtime.likely * 1000
                       + options.max_extra_downtime_ms)
        yield _Candidate(predict.predict(known, disks, most), most)
    plain = dataclasses.replace(options, adapt_downtime_limit=False)
    yield _Candidate(
        predict.predict(dataclasses.replace(known, options=plain), disks),
        None)


def _chosen(known: facts.Facts, disks: Sequence[facts.Disk],
            stock: plan.Prediction, candidate: _Candidate,
            unbuilt: str) -> plan.Plan:
    prediction = candidate.prediction
    copy = collections.Counter(disk.copy for disk in disks).most_common(1)
    strategy = plan.PAGE_CACHE if known.guest.map_pages else plan.SHARED_NAS
    gain = predict.saves(prediction, stock)
    return plan.Plan(
        strategy=strategy, prediction=prediction, stock=stock,
        copy=copy[0][0], disks=_exceptions(known.disks, disks, copy[0][0]),
        max_downtime_limit_ms=candidate.max_downtime_limit_ms,
        fetch_rate=_fetch_rate(known.options, disks),
        fetch_iops=known.options.fetch_iops,
        reason=unbuilt,
        explanation=explain.explain(
            known, disks, stock, prediction,
            _sentence(unbuilt)
            + explain.chosen(strategy, gain, stock, prediction)))


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


def _obstacle(known: facts.Facts, disks: Sequence[facts.Disk]) -> str:
    """Return why nothing can be left out, '' if something can."""
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
    if not known.disks:
        return 'the instance has no disks'
    if not disks:
        return 'host %s cannot read any of the disks: %s' % (
            known.destination.host,
            known.disks[0].reason or 'no reason was given')
    if not known.guest.hint_pages:
        return ('QEMU has not recorded any I/O of the guest. If the guest '
                'does use its disks, check track_io and the log of '
                'nova-compute on host %s' % known.source.host)
    if not predict.duplicate_bytes(known, disks):
        return ('guest memory holds no content of the disks that host %s '
                'can read' % known.destination.host)
    return ''


def _objection(prediction: plan.Prediction, stock: plan.Prediction,
               options: facts.Options) -> str:
    """Return why an ordinary migration is better, '' if it is not.

    If stock does not complete there is nothing to lose.
    """
    gain = predict.saves(prediction, stock)
    if gain <= 0:
        return 'leaving pages out would not be faster'
    if not stock.completes:
        return ''
    if options.strategy == 'auto' and gain < options.min_gain:
        return ('leaving pages out would save only %s of the time; '
                'min_gain is %s' % (units.percent(gain),
                                    units.percent(options.min_gain)))
    ours, theirs = prediction.downtime.likely, stock.downtime.likely
    extra = options.max_extra_downtime_ms / 1000
    if math.isfinite(theirs) and ours > theirs + extra:
        return ('leaving pages out would stop the guest for %s, an '
                'ordinary migration for %s; max_extra_downtime permits %s '
                'more' % tuple(map(units.milliseconds,
                                   (ours, theirs, extra))))
    return ''


def _stock(known: facts.Facts, disks: Sequence[facts.Disk],
           stock: plan.Prediction, prediction: plan.Prediction | None,
           reason: str) -> plan.Plan:
    options = known.options
    adapted = options.adapt_downtime_limit and options.strategy != 'off'
    return plan.Plan(
        strategy=plan.STOCK, prediction=stock, stock=stock, reason=reason,
        max_downtime_limit_ms=options.downtime_ms if adapted else None,
        explanation=explain.explain(
            known, disks, stock, prediction,
            'Chosen: an ordinary migration. ' + _sentence(reason).rstrip()))


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
