# SPDX-License-Identifier: Apache-2.0
"""What a migration leaves out, if anything."""

import collections

from nova_dedup_migrate.planner import explain
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.planner import units


def choose(given):
    """Return the Plan for Facts; whatever they are, it does not raise.

    The migration is an ordinary one unless leaving something out is
    predicted to save min_gain of its time, or, where a strategy was asked
    for by name, not to be slower.
    """
    known = normal.normal(given)
    unbuilt = _unavailable(known)
    stock = predict.predict(known)
    disks = tuple(disk for disk in known.disks
                  if disk.copy != facts.NONE and disk.device)
    obstacle = _obstacle(known, disks)
    if obstacle:
        return _stock(known, disks, stock, None, _join(unbuilt, obstacle))
    prediction = predict.predict(known, disks)
    gain = predict.saves(prediction, stock)
    too_little = _too_little(gain, stock, known.options)
    if too_little:
        return _stock(known, disks, stock, prediction,
                      _join(unbuilt, too_little))
    copy = collections.Counter(disk.copy for disk in disks).most_common(1)
    strategy = plan.PAGE_CACHE if known.guest.map_pages else plan.SHARED_NAS
    return plan.Plan(
        strategy=strategy, prediction=prediction, stock=stock,
        copy=copy[0][0], disks=_exceptions(known.disks, disks, copy[0][0]),
        reason=unbuilt,
        explanation=explain.explain(
            known, disks, stock, prediction,
            _sentence(unbuilt)
            + explain.chosen(strategy, gain, stock, prediction)))


def _unavailable(known):
    """Return why it cannot be what was asked for, '' if it can."""
    strategy = known.options.strategy
    if strategy == 'page_cache' and not known.guest.map_pages:
        return 'page_cache is not available: ' + known.guest.map_reason
    if strategy == 'snapshot':
        return ('snapshot is not available: disks are not yet rebuilt from '
                'backups')
    return ''


def _obstacle(known, disks):
    """Return why nothing can be left out, '' if something can."""
    strategy = known.options.strategy
    if strategy == 'off':
        return 'switched off by %s' % (known.options.strategy_source
                                       or 'nova.conf')
    if strategy not in facts.STRATEGIES:
        return 'strategy %.40r is not known' % (strategy,)
    for end in (known.source, known.destination):
        if not end.patched:
            return 'host %s cannot take part: %s' % (
                end.host, end.reason or 'its QEMU cannot leave out pages')
    if not known.disks:
        return 'the instance has no disks'
    if not disks:
        return 'the destination cannot read any of the disks: %s' % (
            known.disks[0].reason or 'no reason was given')
    if not known.guest.hint_pages:
        return ('nothing is known yet about what memory holds of the disks: '
                'I/O has not been tracked, or there was none')
    return ''


def _too_little(gain, stock, options):
    """Return why the gain does not suffice, '' if it does.

    Where stock gets to no end there is nothing to lose.
    """
    if gain <= 0:
        return 'leaving out pages would not be faster'
    if (options.strategy == 'auto' and gain < options.min_gain
            and stock.completes):
        return ('leaving out pages would save %s of the time only, and '
                'min_gain is %s' % (units.percent(gain),
                                    units.percent(options.min_gain)))
    return ''


def _stock(known, disks, stock, prediction, reason):
    return plan.Plan(
        strategy=plan.STOCK, prediction=stock, stock=stock, reason=reason,
        explanation=explain.explain(
            known, disks, stock, prediction,
            'Chosen: an ordinary migration. ' + _sentence(reason).rstrip()))


def _exceptions(disks, usable, copy):
    """Return the PlanDisks that differ from the default."""
    return tuple(
        plan.PlanDisk(disk.device, disk.copy, True) if disk in usable
        else plan.PlanDisk(disk.device, copy, False)
        for disk in disks
        if disk.device and (disk not in usable or disk.copy != copy))


def _join(*reasons):
    return '; '.join(filter(None, reasons))


def _sentence(reason):
    return reason[:1].upper() + reason[1:] + '. ' if reason else ''
