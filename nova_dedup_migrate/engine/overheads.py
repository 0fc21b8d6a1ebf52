# SPDX-License-Identifier: Apache-2.0
"""How long Nova takes for a live migration beside the migration itself.

A prediction is of what QEMU and libvirt do.  Before it Nova chooses and
prepares the destination, afterwards it plugs networks and disconnects
volumes; and an engine takes note of each with its next step.  How long
that takes depends on the cloud, so it is learned from its last migrations.
"""

from __future__ import annotations

import statistics

import sqlalchemy as sa
from sqlalchemy import orm

from nova_dedup_migrate.db import drains
from nova_dedup_migrate.db import models
from nova_dedup_migrate.planner import plan

#: Seconds, as long as there is no migration to learn from.
USUAL = plan.Band(2.0, 6.0, 30.0)
#: Migrations that are learned from.
_LAST = 20


def band(session: orm.Session) -> plan.Band:
    """Return the seconds in which Nova works on one and QEMU does not.

    The likely value is the median of the last ones, the others are the
    least and the most.
    """
    servers, migrations = models.drain_servers, models.migrations
    found = []
    for submitted, finished, summary in session.execute(
            sa.select(servers.c.submitted_at, servers.c.finished_at,
                      migrations.c.summary)
            .join(migrations, migrations.c.uuid == servers.c.migration_uuid)
            .where(servers.c.state == drains.MOVED,
                   servers.c.action == 'live-migration',
                   migrations.c.revision > 0)
            .order_by(servers.c.key.desc()).limit(_LAST)):
        took = summary.get('total_time')
        if None not in (took, submitted, finished):
            found.append(max(0.0, finished - submitted - took))
    if not found:
        return USUAL
    return plan.Band(min(found), statistics.median(found), max(found))
