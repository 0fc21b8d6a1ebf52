# SPDX-License-Identifier: Apache-2.0
"""The options for oslo-config-generator (entry point)."""

from nova_dedup_migrate.conf import agent
from nova_dedup_migrate.conf import dedup_migrate
from nova_dedup_migrate.conf import upgrade_levels


def list_opts():
    """Return [(group, options)] of all modules here that are ours."""
    return [(dedup_migrate.GROUP,
             dedup_migrate.ALL_OPTS + agent.ALL_OPTS),
            (upgrade_levels.GROUP, upgrade_levels.ALL_OPTS)]
