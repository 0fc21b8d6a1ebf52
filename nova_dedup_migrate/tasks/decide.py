# SPDX-License-Identifier: Apache-2.0
"""Deciding what a migration leaves out."""

from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.tasks import base


class MakePlan(base.Task):
    """Let the planner choose.

    Provides plan: planner.plan.Plan, or None, which means stock.
    """

    default_provides = 'plan'

    @base.harmless('planning')
    def execute(self, facts):
        if facts is None:
            self.record.explain('the facts needed for a plan are missing')
            return None
        plan = choose.choose(facts)
        self.record.plan = plan
        if plan.strategy == 'stock':
            self.record.explain(plan.reason)
        return plan

    def revert(self, **kwargs):
        """A plan is only a thought."""
