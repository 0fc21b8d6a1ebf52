# SPDX-License-Identifier: Apache-2.0
"""Fetching what the destination counted."""

from nova_dedup_migrate.tasks import base


class Collect(base.Task):
    """Ask the destination for its figures of a migration that used it.

    :param collect: callable that returns rpc DedupIncomingReply
    """

    def __init__(self, record, collect):
        super().__init__(record)
        self._collect = collect

    @base.harmless('collecting the figures of the destination')
    def execute(self):
        latest = self.record.latest
        dedup = latest.dedup if latest is not None else None
        if dedup is None or dedup.source is None:
            return
        if not dedup.source.record_pages:
            # It was never told anything and so has no figures.
            return
        self.record.incoming = self._collect()

    def revert(self, **kwargs):
        """Nothing was changed anywhere by asking."""
