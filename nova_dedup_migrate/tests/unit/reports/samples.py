# SPDX-License-Identifier: Apache-2.0
"""Reports and operations for tests."""

import datetime
import math

from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.reports import report

MIGRATION = '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11'
INSTANCE = 'c0a9f1f7-1d33-4d2a-9a3e-1f0b7f1e6d10'
STARTED = 1800000000.0


def band(likely):
    return plan.Band(likely / 2, likely, math.inf)


def prediction(time=10.0, size=1e9, downtime=0.1, **fields):
    return plan.Prediction(band(size), band(time), band(downtime), **fields)


def make_plan(strategy=plan.SHARED_NAS):
    return plan.Plan(strategy=strategy, prediction=prediction(),
                     stock=prediction(time=30.0, size=3e9),
                     disks=(plan.PlanDisk('virtio-disk1', 'own'),),
                     explanation=('One.', 'Two.'))


def make(uuid=MIGRATION, **fields):
    return report.Report(**{
        'migration_uuid': uuid, 'instance_uuid': INSTANCE,
        'source': 'compute1', 'destination': 'compute2',
        'started_at': datetime.datetime.fromtimestamp(
            STARTED, datetime.timezone.utc),
        'finished_at': datetime.datetime.fromtimestamp(
            STARTED + 60, datetime.timezone.utc),
        'outcome': 'completed', 'phase': 'ended',
        'strategy_source': 'nova.conf',
        'strategy_used': plan.SHARED_NAS, 'plan': make_plan(),
        'page_cache': answer.Answer(
            'partial', 'ended: time', 'port', 1.5, 'ended: time', 'pages',
            2, 9, 8, 10, None, 0.5, notes=('nfs: 3 pages',)),
        'prediction_error': report.PredictionError(10.0, -5.0, 3.5),
        'rounds': (report.Round(1, 11.0, report.Paths(9, 8, 7), 10 ** 9,
                                0, 1.2e7, 0.0),),
        'pages': report.Paths(9, 8, 7), 'link_bytes': 10 ** 9,
        'total_time': 11.0, 'downtime_ms': 103,
        'dedup_source': {'state': 'done', 'record_pages': 7,
                         'reason': None},
        'dedup_incoming': {'known': True, 'reads': 5}, **fields})


def look(rounds=1, source=None, **fields):
    """Return a Progress.

    :param source: fields of SourceStatistics
    """
    dedup = None
    if source is not None:
        dedup = statistics.DedupStatistics(
            source=statistics.SourceStatistics(**source))
    return progress.Progress(status='active', rounds=rounds, dedup=dedup,
                             **fields)


def durable(uuid=MIGRATION, **fields):
    """Return the Durable of an operation that has begun at STARTED."""
    return operations.Durable(**{
        'id': uuid, 'kind': operations.LIVE_MIGRATION, 'subject': INSTANCE,
        'source': 'compute1', 'destination': 'compute2',
        'strategy': 'auto', 'strategy_source': 'flavor',
        'phase': operations.RUNNING, 'phase_since': STARTED,
        'started_at': STARTED, **fields})


def make_operation(uuid=MIGRATION, save=lambda operation: None,
                   earlier=None, kept=None, **attributes):
    """Return an Operation that has begun at STARTED.

    :param kept: {name: value} of its Durable
    """
    made = operations.Operation(durable(uuid, **(kept or {})), save,
                                earlier)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def ended(report):
    """Return an Operation that has ended with a Report."""
    return make_operation(
        report.migration_uuid, earlier=report, outcome=report.outcome,
        kept={'phase': operations.ENDED, 'subject': report.instance_uuid},
        finished_at=(report.finished_at.timestamp()
                     if report.finished_at else None))
