# SPDX-License-Identifier: Apache-2.0
"""Fetching what the destination counted."""

from collections.abc import Callable
import typing

from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.tasks import base


class CollectIncoming(base.Task):
    """Fetch the destination's figures of a migration that used it.

    :param collect: callable that returns rpc DedupIncomingReply
    """

    def __init__(self, operation: operations.Operation,
                 collect: Callable[[], typing.Any]) -> None:
        super().__init__(operation)
        self._collect = collect

    @base.harmless('collecting the figures of the destination')
    def execute(self) -> None:
        if self._expects_figures():
            self.operation.incoming = self._collect()

    def _expects_figures(self) -> bool:
        """Return whether the destination may have got records."""
        latest = self.operation.latest
        source = (latest.dedup.source if latest is not None
                  and latest.dedup is not None else None)
        if source is not None:
            return source.record_pages > 0
        # libvirt may have ended the source's QEMU before it was read; then
        # the destination alone knows what became of the plan.
        return (operations.UNDO_ARM in self.operation.durable.undo
                and self.operation.outcome == 'completed')
