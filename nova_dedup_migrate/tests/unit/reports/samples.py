# SPDX-License-Identifier: Apache-2.0
"""Reports and operations for tests."""

import datetime
import math
import pathlib

from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.operations import operation
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import report

MIGRATION = '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11'
INSTANCE = 'c0a9f1f7-1d33-4d2a-9a3e-1f0b7f1e6d10'
#: What a host's facts have of a replica: a DedupReplica.
REPLICA = {'instance_uuid': INSTANCE, 'target': 'vda', 'project_id': 'p1',
           'source': 'compute1', 'state': 'done', 'reason': '', 'done': 5,
           'total': 10, 'size': 1 << 30, 'allocated': 1 << 20,
           'refreshed': 1e9, 'expires': 1e9 + 86400}
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
        'outcome': 'completed', 'phase': operation.ENDED,
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


def make_operation(save=None, **attributes):
    """Return an Operation that began at STARTED.

    :param save: callable(Operation), default: does nothing
    """
    made = operation.Operation(operation.Durable(
        MIGRATION, operation.LIVE_MIGRATION, INSTANCE, 'compute1',
        'compute2', 'auto', 'flavor', phase=operation.RUNNING,
        phase_since=STARTED, started_at=STARTED), save or (lambda it: None))
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def write(kept, made):
    """Write a Report into an OperationStore, with its operation."""
    given = operation.Operation(operation.Durable(
        made.migration_uuid, operation.LIVE_MIGRATION, made.instance_uuid,
        made.source, made.destination, made.strategy_requested,
        made.strategy_source, phase=made.phase, progress=made.progress,
        started_at=made.started_at.timestamp()), kept.write, earlier=made)
    given.outcome = None if made.outcome == 'running' else made.outcome
    if made.finished_at is not None:
        given.finished_at = made.finished_at.timestamp()
    if made.error:
        given.error = RuntimeError(made.error)
    # The warnings are in the earlier report.
    given.save()


def documented():
    """Return the Report that the documentation shows.

    It is that of a migration in the lab (``make lab-migrate``), with other
    UUIDs: 512 MiB of memory, most of it page cache, over 100 Mbit/s.
    """
    return codec.decode(
        pathlib.Path(__file__).with_name('completed.json').read_bytes())
