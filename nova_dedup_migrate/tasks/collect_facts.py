# SPDX-License-Identifier: Apache-2.0
"""Collecting the facts that a plan is made of."""

from collections.abc import Callable

from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.tasks import base


class CollectFacts(base.Task):
    """Collect facts about the guest and both hosts.

    :param collect: callable that returns Facts
    :param reason_for_stock: why facts are of no use, '' if they are
    """

    def __init__(self, operation: operations.Operation,
                 collect: Callable[[], facts.Facts],
                 reason_for_stock: str = '') -> None:
        super().__init__(operation)
        self._collect = collect
        self._reason_for_stock = reason_for_stock

    @base.harmless('collecting facts')
    def execute(self) -> None:
        if self._reason_for_stock:
            self.operation.explain(self._reason_for_stock)
            return
        self.operation.facts = self._collect()
