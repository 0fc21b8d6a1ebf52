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
        latest = self.operation.latest
        dedup = latest.dedup if latest is not None else None
        if dedup is None or dedup.source is None:
            return
        if not dedup.source.record_pages:
            # It never got a record and so has no figures.
            return
        self.operation.incoming = self._collect()
