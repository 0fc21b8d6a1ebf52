# SPDX-License-Identifier: Apache-2.0
"""Finding out what is known before a migration."""

from nova_dedup_migrate.tasks import base


class GatherFacts(base.Task):
    """Ask both hosts.

    Provides gathered: planner.facts.Facts, or None if there are none, which
    means a stock migration.

    :param gather: callable that returns Facts
    """

    default_provides = 'gathered'

    def __init__(self, record, gather):
        super().__init__(record)
        self._gather = gather

    @base.harmless('gathering facts')
    def execute(self):
        self.record.facts = self._gather()
        return self.record.facts

    def revert(self, **kwargs):
        """Nothing was changed anywhere by asking."""
