# SPDX-License-Identifier: Apache-2.0
"""Choosing what a migration leaves out."""

from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import measured_downtime
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tasks import base


class MakePlan(base.Task):
    """Let the planner choose; without a plan the migration is stock."""

    @base.harmless('planning')
    def execute(self) -> None:
        if self.operation.facts is None:
            self.operation.explain('the facts that a plan needs are missing, '
                                   'see the warnings')
            return
        self.operation.working_set = _working_set(self.operation.facts)
        plan = choose.choose(self.operation.facts)
        self.operation.plan = plan
        if plan.strategy == 'stock':
            self.operation.explain(plan.reason)


def _working_set(known: facts.Facts) -> report.WorkingSet | None:
    expected = measured_downtime.expect(known)
    if expected is None:
        return None
    rate, found = expected
    return report.WorkingSet(
        windows=tuple(sorted(known.guest.windows,
                             key=lambda one: one.seconds)),
        link_rate=rate, downtime_ms=round(found.downtime * 1000, 1),
        rounds=found.rounds, converges=found.converges)
