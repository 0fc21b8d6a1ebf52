# SPDX-License-Identifier: Apache-2.0
"""What only Nova has of migrations: projects, names, those without agents.

Nova's list is read by what has changed since the last time, never by
server.  The name of a server is read once, when its migration is new.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
import sqlalchemy as sa

from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import migrations
from nova_dedup_migrate.db import models
from nova_dedup_migrate.engine import cloud as clouds
from nova_dedup_migrate.engine import errors
from nova_dedup_migrate.engine import summary

LOG = logging.getLogger(__name__)

#: Seconds that clocks may differ, and that Nova's list may be late.
_OVERLAP = 120.0
#: Seconds before the start of the engine that are looked at.
_PAST = 86400.0
_STATES = {**dict.fromkeys(clouds.COMPLETED, 'completed'),
           'cancelled': 'cancelled', 'error': 'failed', 'failed': 'failed'}


class NovaSync:
    """:param cloud: engine.cloud.Cloud"""

    def __init__(self, database: facade.Database, cloud: clouds.Cloud,
                 conf: cfg.ConfigOpts) -> None:
        self._database = database
        self._cloud = cloud
        self._since: float | None = None

    def sync(self) -> None:
        """Take what has changed.

        :raises CloudUnavailable:
        """
        now = self._database.now()
        since = (now - _PAST if self._since is None
                 else self._since - _OVERLAP)
        for one in self._cloud.migrations(since,
                                          migration_type=clouds.LIVE):
            self._note(one)
        self._since = now

    def _note(self, one: clouds.Migration) -> None:
        table, servers = models.migrations, models.drain_servers
        with self._database.read() as session:
            row = session.execute(sa.select(table).where(
                table.c.uuid == one.uuid)).mappings().one_or_none()
            known = None if row is None else dict(row)
            drain = session.scalar(
                sa.select(servers.c.drain_id).where(
                    servers.c.migration_uuid == one.uuid).limit(1))
        extra: dict[str, Any] = {}
        if known is None or known['server_name'] is None:
            extra.update(self._names(one))
        if drain is not None:
            extra['drain_id'] = drain
        values = _values(one, known)
        self._database.retrying(
            lambda session: migrations.note(session, values, extra))

    def _names(self, one: clouds.Migration) -> dict[str, Any]:
        try:
            server = self._cloud.server(one.server_id)
        except errors.NoSuchServer:
            return {'server_name': ''}
        # Not the project of the migration, which is that of the operator.
        return {'server_name': server.name,
                'project_id': server.project_id}


def _values(one: clouds.Migration, known: Mapping[str, Any] | None
            ) -> dict[str, Any]:
    state = _STATES.get(one.status, 'running')
    return {
        'uuid': one.uuid, 'server_id': one.server_id, 'source': one.source,
        'destination': one.destination, 'state': state,
        'phase': one.status[:32], 'strategy': '',
        'started_at': one.created_at,
        'finished_at': known['finished_at'] if known is not None else None,
        'revision': 0, 'summary': summary.of_nova(state)}
