# SPDX-License-Identifier: Apache-2.0
"""Keeping a report, from the first moment on."""

from nova_dedup_migrate.tasks import base


class OpenReport(base.Task):
    """Write a report that says that the migration is under way.

    If nova-compute is killed, this is what remains; close_unfinished()
    of compute.service ends it at the next start.  Its revert, the last
    one of the flow, writes how it failed.

    :param keep: callable that writes the report of a record
    """

    def __init__(self, record, keep):
        super().__init__(record)
        self._keep = keep

    @base.harmless('writing the report')
    def execute(self):
        self._keep(self.record)

    @base.harmless('writing the report')
    def revert(self, **kwargs):
        self.record.finish('failed')
        self._keep(self.record)


class CloseReport(base.Task):
    """Write the report of a migration that is over."""

    def __init__(self, record, keep):
        super().__init__(record)
        self._keep = keep

    @base.harmless('writing the report')
    def execute(self):
        self._keep(self.record)

    def revert(self, **kwargs):
        """OpenReport writes it again."""
