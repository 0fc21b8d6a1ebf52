# SPDX-License-Identifier: Apache-2.0
"""What tests of tasks and flows share."""

from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.tests.unit.operations import samples

MIGRATION = '11111111-0000-4000-8000-000000000001'
INSTANCE = '22222222-0000-4000-8000-000000000002'


def operation(disk=None, earlier=None, **fields):
    """Return an Operation that is requested.

    :param disk: samples.Disk
    :param fields: of its Durable
    """
    return operations.Operation(operations.Durable(**{
        'id': MIGRATION, 'kind': operations.LIVE_MIGRATION,
        'subject': INSTANCE, 'source': 'here', 'destination': 'there',
        'strategy': 'auto', 'strategy_source': 'nova.conf', **fields}),
        (disk or samples.Disk()).save, earlier)


def some_facts():
    return facts.Facts(
        guest=facts.Guest(memory=1 << 30, resident=1 << 29,
                          hint_pages=1 << 16, dirty_rate=0.0),
        disks=(facts.Disk('virtio-disk0', 'vda', 'shared'),),
        source=facts.End('here', True), destination=facts.End('there', True))


def some_plan(strategy='shared_nas', reason=''):
    band = plan.Band(1.0, 2.0, 3.0)
    prediction = plan.Prediction(bytes=band, time=band, downtime=band)
    return plan.Plan(
        strategy=strategy, prediction=prediction, stock=prediction,
        disks=(plan.PlanDisk('virtio-disk0', 'shared'),
               plan.PlanDisk('virtio-disk1', 'own', use=False)),
        copy='shared', resend=True, reason=reason)


def look(rounds=1, status='active', mbps=800.0, remaining=1 << 20, **source):
    """Return a Progress; source: fields of SourceStatistics."""
    return progress.Progress(
        status=status, rounds=rounds, total_bytes=1 << 30, mbps=mbps,
        remaining_bytes=remaining,
        dedup=statistics.DedupStatistics(
            tracking=True, source=statistics.SourceStatistics(
                state='active', **source)) if source else None)
