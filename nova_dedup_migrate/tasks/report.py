# SPDX-License-Identifier: Apache-2.0
"""Keeping a report, from the first moment on."""

from nova_dedup_migrate.tasks import base


class _Keep(base.Task):
    """Writes the report.

    :param keep: callable that writes the report of a record
    """

    def __init__(self, record, keep):
        super().__init__(record)
        self._keep = keep

    @base.harmless('writing the report')
    def execute(self):
        self._keep(self.record)


class OpenReport(_Keep):
    """Write a report that says that the migration is under way.

    If nova-compute is killed, this is what remains; close_unfinished()
    of compute.service ends it at the next start.  Its revert, the last
    one of the flow, writes how it failed.
    """

    @base.harmless('writing the report')
    def revert(self, **kwargs):
        self.record.finish('failed')
        self._keep(self.record)


class CloseReport(_Keep):
    """Write the report of a migration that is over."""

    def revert(self, **kwargs):
        """OpenReport writes it again."""
