# SPDX-License-Identifier: Apache-2.0
"""Building the report of an operation."""

from __future__ import annotations

import dataclasses
import datetime
import math
import typing

from nova_dedup_migrate.hypervisor import progress as hypervisor
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.reports import rounds

if typing.TYPE_CHECKING:
    # It imports this module.
    from nova_dedup_migrate.operations import operation as operations


def of_operation(operation: operations.Operation) -> report.Report:
    """Return a Report.

    :param operation: operations.operation.Operation, ended or not
    """
    outcome = operation.outcome or 'running'
    progress = (operation.durable.progress if outcome == 'running'
                else None)
    if operation.earlier is not None:
        return _continued(operation.earlier, operation, outcome, progress)
    latest = operation.latest
    source = (latest.dedup.source
              if latest is not None and latest.dedup is not None else None)
    fields: dict[str, typing.Any] = {}
    if latest is not None:
        fields.update(_figures(latest, source))
        fields['downtime_ms'] = _downtime_ms(latest, operation.downtime)
    made = report.Report(
        migration_uuid=operation.migration_uuid,
        instance_uuid=operation.instance_uuid,
        source=operation.source, destination=operation.destination,
        started_at=_time(operation.durable.started_at),
        finished_at=_finished_at(operation),
        outcome=outcome, phase=operation.phase, progress=progress,
        error=_error(operation),
        strategy_requested=operation.strategy,
        strategy_source=operation.strategy_source,
        strategy_used=_used(operation, source),
        fallback_reason=operation.reason, page_cache=operation.page_cache,
        content_index=operation.content_index,
        working_set=operation.working_set, plan=operation.plan,
        rounds=rounds.summarize(list(operation.rounds)),
        dedup_incoming=_plain(operation.incoming),
        disks=tuple(operation.disks),
        warnings=tuple(operation.warnings), **fields)
    return dataclasses.replace(made, prediction_error=compare(made))


def _continued(earlier: report.Report, operation: operations.Operation,
               outcome: str,
               progress: report.Progress | None) -> report.Report:
    """Return the Report of an operation that an earlier process began."""
    return dataclasses.replace(
        earlier, outcome=outcome, progress=progress, phase=operation.phase,
        destination=operation.destination or earlier.destination,
        error=_error(operation) or earlier.error,
        fallback_reason=earlier.fallback_reason or operation.reason,
        finished_at=_finished_at(operation),
        warnings=earlier.warnings + tuple(operation.warnings))


def _error(operation: operations.Operation) -> str:
    return str(operation.error or operation.failure or '')[:2000]


def compare(made: report.Report) -> report.PredictionError | None:
    """Return the PredictionError of a Report, None if not completed."""
    if made.outcome != 'completed' or made.plan is None:
        return None
    expected = (made.plan.stock
                if made.strategy_used == planner_plan.STOCK
                else made.plan.prediction)
    # The figures of QEMU are those of memory alone.
    memory = expected.bytes.likely - expected.disk_bytes
    duration = expected.time.likely - expected.disk_time
    return report.PredictionError(
        time_percent=_percent(made.total_time, duration),
        bytes_percent=_percent(made.link_bytes, memory),
        downtime_ms=_difference(made.downtime_ms,
                                expected.downtime.likely * 1000))


def _figures(latest: hypervisor.Progress,
             source: statistics.SourceStatistics | None
             ) -> dict[str, typing.Any]:
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


def _downtime_ms(latest: hypervisor.Progress,
                 downtime: float | None) -> int | None:
    """Return the figure of QEMU, else the one from its events."""
    if latest.downtime_ms is None and downtime is not None:
        return round(downtime * 1000)
    return latest.downtime_ms


def _used(operation: operations.Operation,
          source: statistics.SourceStatistics | None) -> str:
    """Return the strategy that had an effect."""
    if operation.plan is None:
        return planner_plan.STOCK
    if source is None:
        # QEMU on the source ended before its figures were read.
        incoming = operation.incoming
        return (operation.plan.strategy
                if incoming is not None and incoming.record_pages
                else planner_plan.STOCK)
    if source.record_pages:
        return operation.plan.strategy
    return (planner_plan.COMPRESS if source.compressed_pages
            else planner_plan.STOCK)


def _finished_at(operation: operations.Operation
                 ) -> datetime.datetime | None:
    seconds = operation.finished_at
    return None if seconds is None else _time(seconds)


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)


def _plain(figures: typing.Any) -> dict[str, typing.Any] | None:
    """Return the dict of a dataclass or a versioned object."""
    if figures is None:
        return None
    if dataclasses.is_dataclass(figures) and not isinstance(figures, type):
        # Counters and texts only: what is a list has a log line.
        return {name: value for name, value
                in dataclasses.asdict(figures).items()
                if not isinstance(value, tuple)}
    return {name: getattr(figures, name) for name in figures.fields}


def _percent(outcome: float | None, expected: float) -> float | None:
    if outcome is None or not math.isfinite(expected) or expected <= 0:
        return None
    return round((outcome / expected - 1) * 100, 1)


def _difference(outcome: float | None, expected: float) -> float | None:
    if outcome is None or not math.isfinite(expected):
        return None
    return round(outcome - expected, 1)
