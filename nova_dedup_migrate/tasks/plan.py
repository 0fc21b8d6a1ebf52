# SPDX-License-Identifier: Apache-2.0
"""Choosing what a migration leaves out."""

from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.tasks import base


class MakePlan(base.Task):
    """Let the planner choose; without a plan the migration is stock."""

    @base.harmless('planning')
    def execute(self) -> None:
        if self.operation.facts is None:
            self.operation.explain('the facts that a plan needs are missing, '
                                   'see the warnings')
            return
        plan = choose.choose(self.operation.facts)
        self.operation.plan = plan
        if plan.strategy == 'stock':
            self.operation.explain(plan.reason)
