# SPDX-License-Identifier: Apache-2.0
"""Making the report of an operation."""

import dataclasses
import datetime
import math

from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.reports import rounds


def of_operation(operation):
    """Return a Report.

    :param operation: operations.operation.Operation, finished or not
    """
    outcome = operation.outcome or 'running'
    progress = (operation.durable.progress if outcome == 'running'
                else None)
    if operation.earlier is not None:
        return _continued(operation.earlier, operation, outcome, progress)
    latest = operation.latest
    source = (latest.dedup.source
              if latest is not None and latest.dedup is not None else None)
    fields = {}
    if latest is not None:
        fields.update(_figures(latest, source))
        fields['downtime_ms'] = _downtime_ms(latest, operation.downtime)
    made = report.Report(
        migration_uuid=operation.migration_uuid,
        instance_uuid=operation.instance_uuid,
        source=operation.source, destination=operation.destination,
        started_at=_time(operation.durable.started_at),
        finished_at=_time(operation.finished_at),
        outcome=outcome, phase=operation.phase, progress=progress,
        error=_error(operation),
        strategy_asked=operation.strategy,
        strategy_source=operation.strategy_source,
        strategy_used=_used(operation, source),
        fallback_reason=operation.reason, page_cache=operation.page_cache,
        plan=operation.plan,
        rounds=rounds.summarize(list(operation.rounds)),
        dedup_incoming=_plain(operation.incoming),
        warnings=tuple(operation.warnings), **fields)
    return dataclasses.replace(made, prediction_error=compare(made))


def _continued(earlier, operation, outcome, progress):
    """Return the Report of an operation that an earlier process began."""
    return dataclasses.replace(
        earlier, outcome=outcome, progress=progress, phase=operation.phase,
        destination=operation.destination or earlier.destination,
        error=_error(operation) or earlier.error,
        fallback_reason=earlier.fallback_reason or operation.reason,
        finished_at=_time(operation.finished_at),
        warnings=earlier.warnings + tuple(operation.warnings))


def _error(operation):
    return str(operation.error or operation.failure or '')[:2000]


def compare(made):
    """Return PredictionError of a Report, None if it has no outcome."""
    if made.outcome != 'completed' or made.plan is None:
        return None
    expected = (made.plan.stock
                if made.strategy_used == planner_plan.STOCK
                else made.plan.prediction)
    # QEMU's figures are about memory.
    memory = expected.bytes.likely - expected.disk_bytes
    duration = expected.time.likely - expected.disk_time
    return report.PredictionError(
        time_percent=_percent(made.total_time, duration),
        bytes_percent=_percent(made.link_bytes, memory),
        downtime_ms=_difference(made.downtime_ms,
                                expected.downtime.likely * 1000))


def _figures(latest, source):
    storage = latest.pages.storage
    return {
        'pages': report.Paths(latest.pages.peer, latest.pages.zero, storage),
        'bytes': report.Paths(latest.pages.peer * latest.page_size,
                              latest.pages.zero * latest.page_size,
                              storage * latest.page_size),
        'link_bytes': latest.transferred_bytes,
        'digest_failures': source.nack_digest if source else 0,
        'storage_failures': source.nack_io if source else 0,
        'total_time': (latest.total_time_ms / 1000
                       if latest.total_time_ms is not None else None),
        'dedup_source': _plain(source)}


def _downtime_ms(latest, downtime):
    """Return QEMU's figure, that of its events if it could not be had."""
    if latest.downtime_ms is None and downtime is not None:
        return round(downtime * 1000)
    return latest.downtime_ms


def _used(operation, source):
    """Return the strategy that had any effect."""
    if operation.plan is None or source is None or not source.record_pages:
        return planner_plan.STOCK
    return operation.plan.strategy


def _time(seconds):
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)


def _plain(statistics):
    """Return figures as a dict, of a dataclass or a versioned object."""
    if statistics is None:
        return None
    if dataclasses.is_dataclass(statistics):
        return dataclasses.asdict(statistics)
    return {name: getattr(statistics, name) for name in statistics.fields}


def _percent(outcome, expected):
    if outcome is None or not math.isfinite(expected) or expected <= 0:
        return None
    return round((outcome / expected - 1) * 100, 1)


def _difference(outcome, expected):
    if outcome is None or not math.isfinite(expected):
        return None
    return round(outcome - expected, 1)
