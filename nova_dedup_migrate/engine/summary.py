# SPDX-License-Identifier: Apache-2.0
"""What the table of migrations holds of a report.

A list shows thousands of migrations, so each has the few figures of its
report that lists and charts need; api/schemas.py describes them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.planner import units
from nova_dedup_migrate.reports import report as reports

#: A guest that writes this share of what the link carries is why a
#: migration takes long.
_FAST = 0.7
_NOTHING = {'total': None, 'done': None, 'remaining': None}
#: What a migration waits for in a phase.
_PHASES = {
    'requested': 'Nova prepares the destination',
    'preparing': 'facts are collected and the plan is made',
    'finishing': 'Nova finishes the migration',
    'rolling back': 'Nova rolls the migration back',
    'stuck': 'the instance is in ERROR; recovery observes where its guest '
             'runs',
}


def of_report(report: reports.Report, revision: int) -> dict[str, Any]:
    """Return the values of a migration, by column."""
    return {
        'uuid': report.migration_uuid, 'server_id': report.instance_uuid,
        'source': report.source, 'destination': report.destination,
        'state': report.outcome, 'phase': report.phase[:32],
        'strategy': (report.strategy_used if report.outcome != 'running'
                     or report.plan is None
                     else report.plan.strategy)[:32],
        'started_at': report.started_at.timestamp(),
        'finished_at': (None if report.finished_at is None
                        else report.finished_at.timestamp()),
        'revision': revision, 'summary': _summary(report)}


def of_nova(state: str) -> dict[str, Any]:
    """Return the summary of a migration of which no report has come."""
    return {**_BLANK, 'waiting_for': None if state != 'running' else
            'no report of the source host has come yet'}


def _summary(report: reports.Report) -> dict[str, Any]:
    last = report.rounds[-1] if report.rounds else None
    running = report.outcome == 'running'
    progress = report.progress if running else None
    made = {
        **_BLANK,
        'fallback_reason': report.fallback_reason or None,
        'error': report.error or None,
        'share': (None if progress is None
                  else min(1.0, max(0.0, progress.share))),
        'progress': _progress(report, progress),
        'round': None if last is None else last.number,
        'bytes': dataclasses.asdict(report.bytes),
        'link_bytes': report.link_bytes, 'total_time': report.total_time,
        'downtime_ms': report.downtime_ms,
        'waiting_for': waiting_for(report) if running else None,
        'warnings': len(report.warnings)}
    if last is not None:
        made['rates'] = {'link': last.link_rate, 'dirty': last.dirty_rate}
    if report.plan is not None:
        used = (report.plan.stock
                if report.strategy_used == planner_plan.STOCK
                and not running else report.plan.prediction)
        made.update(predicted=prediction(used),
                    stock=prediction(report.plan.stock))
        made.update(_eta(report.plan.prediction, progress))
    elif progress is not None:
        made['eta'] = {'low': None, 'likely': progress.seconds_left,
                       'high': None}
    return made


_BLANK: dict[str, Any] = {
    'fallback_reason': None, 'error': None, 'share': None,
    'progress': {'memory': _NOTHING, 'disk': _NOTHING},
    'rates': {'link': None, 'dirty': None}, 'round': None,
    'bytes': {'peer': 0, 'zero': 0, 'storage': 0}, 'link_bytes': None,
    'eta': None, 'eta_memory': None, 'eta_disk': None,
    'waiting_for': None, 'total_time': None, 'downtime_ms': None,
    'predicted': None, 'stock': None, 'warnings': 0}


def _progress(report: reports.Report, progress: reports.Progress | None
              ) -> dict[str, Any]:
    if progress is None:
        return {'memory': _NOTHING, 'disk': _NOTHING}
    return {'memory': _done(progress.memory_total,
                            progress.memory_remaining),
            'disk': _done(progress.disk_total, progress.disk_remaining)}


def _done(total: int | None, remaining: int | None) -> dict[str, Any]:
    if total is None or remaining is None:
        return _NOTHING
    return {'total': total, 'done': max(0, total - remaining),
            'remaining': remaining}


def _eta(predicted: planner_plan.Prediction,
         progress: reports.Progress | None) -> dict[str, Any]:
    """Return bands of the seconds left: all, memory and disks.

    The width is that of the prediction; the middle is what the watch on
    the host has last seen.
    """
    if progress is None or progress.seconds_left is None:
        return {}
    left = progress.seconds_left
    disks = 0.0
    if progress.disk_total and progress.disk_remaining:
        disks = min(left, predicted.disk_time * progress.disk_remaining
                    / progress.disk_total)
    return {'eta': _around(left, predicted.time),
            'eta_memory': _around(left - disks, predicted.time),
            'eta_disk': (_around(disks, predicted.time)
                         if progress.disk_total else None)}


def _around(likely: float, like: planner_plan.Band) -> dict[str, Any]:
    """Return a band around a value that is as wide as another one."""
    if not 0 < like.likely < math.inf:
        return {'low': None, 'likely': likely, 'high': None}
    high = likely * like.high / like.likely
    return {'low': likely * like.low / like.likely, 'likely': likely,
            'high': high if math.isfinite(high) else None}


def band(value: planner_plan.Band) -> dict[str, Any]:
    """Return a band as JSON has it."""
    return {name: limit if math.isfinite(limit) else None
            for name, limit in (('low', value.low),
                                ('likely', value.likely),
                                ('high', value.high))}


def prediction(value: planner_plan.Prediction) -> dict[str, Any]:
    """Return a prediction as JSON has it."""
    return {'time': band(value.time), 'bytes': band(value.bytes),
            'downtime': band(value.downtime), 'completes': value.completes}


def waiting_for(report: reports.Report) -> str:
    """Return why a running migration is not over, in words."""
    if report.phase in _PHASES:
        return _PHASES[report.phase]
    progress = report.progress
    if not report.rounds:
        if progress is not None and progress.disk_remaining:
            return ('%s of disks are left to copy'
                    % units.size(progress.disk_remaining))
        return 'QEMU has not begun to send memory'
    last = report.rounds[-1]
    if last.link_rate and last.dirty_rate >= last.link_rate * _FAST:
        return ('the guest writes to memory at %s and the link carries %s'
                % (units.rate(last.dirty_rate), units.rate(last.link_rate)))
    if report.fallback_reason and not report.bytes.storage:
        return ('nothing is left out: %s; %s of memory are left to send'
                % (report.fallback_reason,
                   units.size(last.remaining_bytes)))
    return '%s of memory are left to send' % units.size(
        last.remaining_bytes)
