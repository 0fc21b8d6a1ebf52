# SPDX-License-Identifier: Apache-2.0
"""Building the report of a migration from its record."""

import dataclasses
import datetime
import math

from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.reports import rounds


def of_record(record):
    """Return a Report.

    :param record: tasks.record.MigrationRecord, finished or not
    """
    latest = record.latest
    source = (latest.dedup.source
              if latest is not None and latest.dedup is not None else None)
    fields = {}
    if latest is not None:
        fields.update(_figures(latest, source))
        fields['downtime_ms'] = _downtime_ms(latest, record.pause)
    made = report.Report(
        migration_uuid=record.migration_uuid,
        instance_uuid=record.instance_uuid,
        source=record.source, destination=record.destination,
        started_at=_time(record.started_at),
        finished_at=_time(record.finished_at),
        outcome=record.outcome or 'running',
        error=str(record.error or record.failure or '')[:2000],
        strategy_requested=record.strategy,
        strategy_source=record.strategy_source,
        strategy_used=_used(record, source),
        fallback_reason=record.reason, page_cache=record.page_cache,
        plan=record.plan,
        rounds=rounds.summarize(list(record.rounds)),
        dedup_incoming=_plain(record.incoming),
        warnings=tuple(record.warnings), **fields)
    return dataclasses.replace(made, prediction_error=compare(made))


def compare(made):
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


def _downtime_ms(latest, pause):
    """Return the figure of QEMU, else the one from its events."""
    if latest.downtime_ms is None and pause is not None:
        return round(pause * 1000)
    return latest.downtime_ms


def _used(record, source):
    """Return the strategy that had an effect."""
    if record.plan is None or source is None or not source.record_pages:
        return planner_plan.STOCK
    return record.plan.strategy


def _time(seconds):
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)


def _plain(statistics):
    """Return the dict of a dataclass or a versioned object."""
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
