# SPDX-License-Identifier: Apache-2.0
"""Whether a host is safe to power off: facts that are checked.

A drain that has ended is no proof; each condition is observed.  A host is
safe to power off only if all of them hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from nova_dedup_migrate.db import drains
from nova_dedup_migrate.engine import cloud as clouds

#: Seconds of migrations that are looked at.
_DAY = 86400.0
#: States of servers of a drain that are not on the host any more.
_LEFT = (drains.MOVED, drains.GONE)
#: Seconds after which a report surely does not have a guest that has left.
_SETTLED = 5.0


def check(cloud: clouds.Cloud, host: str, row: Mapping[str, Any] | None,
          now: float, agent_timeout: float) -> list[dict[str, Any]]:
    """Return conditions as api.schemas.CONDITION has them.

    :param row: of the table hosts, None if no agent has reported it
    :param now: by the database's clock
    :raises CloudUnavailable:
    """
    made: list[dict[str, Any]] = []

    def add(kind: str, status: bool, good: str, bad: str) -> None:
        made.append({'type': kind, 'status': status,
                     'reason': good if status else bad, 'checked_at': now})

    service = cloud.service(host)
    add('ComputeServiceDisabled', service is None or not service.enabled,
        'Nova places no server on the host',
        'nova-compute is enabled, so Nova may place servers on the host')
    running = [one for one in cloud.servers(host) if one.running]
    add('NoServersRun', not running, 'no server of Nova runs on the host',
        '%d servers run on the host, such as %s'
        % (len(running), running[0].id if running else ''))
    under_way = [one for one in cloud.migrations(now - _DAY, host=host)
                 if not one.over]
    add('NoMigrations', not under_way, 'no migration from or to the host',
        '%d migrations from or to the host are under way, such as %s'
        % (len(under_way), under_way[0].uuid if under_way else ''))
    if row is not None:
        guests = row['facts'].get('guests', ())
        fresh = (row['seen_at'] or 0.0) > now - agent_timeout
        add('NoGuestsSeen', fresh and not guests,
            'the agent sees no guest on the host',
            'the agent sees %d guests on the host' % len(guests)
            if fresh else 'the agent has not reported for %d s'
            % (now - (row['seen_at'] or 0.0)))
    return made


def is_stale(row: Mapping[str, Any] | None,
             servers: Iterable[Mapping[str, Any]], now: float,
             agent_timeout: float) -> bool:
    """Whether guests that the agent has reported may have left since.

    An agent that does not report any more is not waited for.

    :param row: of the table hosts, None if no agent has reported it
    :param servers: of the drain, by column
    """
    if row is None or not row['facts'].get('guests'):
        return False
    seen = row['seen_at'] or 0.0
    last = max((one['finished_at'] for one in servers
                if one['state'] in _LEFT), default=0.0)
    return bool(now - agent_timeout < seen < last + _SETTLED)


def safe(conditions: list[dict[str, Any]]) -> bool:
    """Whether all hold."""
    return bool(conditions) and all(one['status'] for one in conditions)
