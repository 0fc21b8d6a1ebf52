# SPDX-License-Identifier: Apache-2.0
"""What the owner of a drain reads and writes of it.

Every write begins with the fence of the lease, so an engine that has lost
the drain writes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import orm

from nova_dedup_migrate.db import clock
from nova_dedup_migrate.db import drains
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import leases
from nova_dedup_migrate.db import migrations
from nova_dedup_migrate.db import models
from nova_dedup_migrate.engine import overheads
from nova_dedup_migrate.engine import slots
from nova_dedup_migrate.planner import plan

_Result = TypeVar('_Result')
_DRAINS = models.drains
_SERVERS = models.drain_servers
_EVENTS = models.events


class Writer:
    """One transaction of the owner; most methods return the Writer."""

    def __init__(self, session: orm.Session, drain_id: str) -> None:
        self._session = session
        self._drain_id = drain_id

    def drain(self, **values: Any) -> Writer:
        """Change columns of the drain."""
        self._session.execute(
            sa.update(_DRAINS).where(_DRAINS.c.id == self._drain_id)
            .values(updated_at=clock.now(), **values))
        return self

    def finish(self, state: str, reason: str = '') -> Writer:
        """End the drain; its slots are free."""
        slots.free_all(self._session, self._drain_id)
        return self.drain(state=state, reason=reason, active_host=None,
                          wish=drains.RUN, finished_at=clock.now(),
                          eta=None)

    def add_server(self, **values: Any) -> None:
        """Add a server, queued or as values have it."""
        self._session.execute(sa.insert(_SERVERS).values(**{
            'drain_id': self._drain_id, 'state': drains.QUEUED,
            'reason': '', 'blockers': [], 'action': 'live-migration',
            'tries': 0, 'destination': '', 'updated_at': clock.now(),
            **values}))

    def server(self, row: Mapping[str, Any], **values: Any) -> bool:
        """Change columns of a server, unless its state has changed.

        An operator may have skipped it since row was read.

        :returns: whether it was changed
        """
        if values.get('state') in drains.SERVER_FINAL:
            values['finished_at'] = clock.now()
        if values.get('state') not in (None, *drains.IN_FLIGHT):
            slots.free(self._session, row['server_id'])
        done: Any = self._session.execute(
            sa.update(_SERVERS).where(
                _SERVERS.c.key == row['key'],
                _SERVERS.c.state == row['state'])
            .values(updated_at=clock.now(), **values))
        if done.rowcount and values.get('migration_uuid'):
            # What Nova and agents tell of it has no drain.
            migrations.set_drain(self._session, values['migration_uuid'],
                                 self._drain_id)
        return bool(done.rowcount)

    def event(self, message: str, server_id: str | None = None) -> Writer:
        """Add an event; of too many the oldest ones go."""
        done: Any = self._session.execute(sa.insert(_EVENTS).values(
            drain_id=self._drain_id, server_id=server_id, at=clock.now(),
            message=message[:2000]))
        number = done.inserted_primary_key[0]
        if number % 100 == 0:
            oldest = self._session.scalar(
                sa.select(_EVENTS.c.id).where(
                    _EVENTS.c.drain_id == self._drain_id)
                .order_by(_EVENTS.c.id.desc())
                .offset(drains.MAX_EVENTS).limit(1))
            if oldest is not None:
                self._session.execute(sa.delete(_EVENTS).where(
                    _EVENTS.c.drain_id == self._drain_id,
                    _EVENTS.c.id <= oldest))
        return self

    def claim(self, host: str, server_id: str, most: int) -> bool:
        """Take a slot of the host; return whether there was one."""
        return slots.claim(self._session, host, self._drain_id, server_id,
                           most)


class Records:
    """:ivar drain_id: of the drain
    :param lease: of the drain
    """

    def __init__(self, database: facade.Database, lease: leases.Lease,
                 drain_id: str) -> None:
        self._database = database
        self._lease = lease
        self.drain_id = drain_id

    def read(self) -> tuple[dict[str, Any], list[dict[str, Any]], float]:
        """Return the drain, its servers by position, and the time."""
        with self._database.read() as session:
            return (dict(drains.get(session, self.drain_id)),
                    drains.all_servers(session, self.drain_id),
                    float(session.scalar(sa.select(clock.now())) or 0.0))

    def host(self, name: str) -> Mapping[str, Any] | None:
        """Return what is known of a host, None if no agent has reported.
        """
        with self._database.read() as session:
            row = session.execute(sa.select(models.hosts).where(
                models.hosts.c.name == name)).mappings().one_or_none()
            return None if row is None else dict(row)

    def others_take_part(self, name: str, since: float) -> bool:
        """Whether another host has a patched QEMU.

        :param since: reports of agents that are older do not count
        """
        with self._database.read() as session:
            for facts in session.scalars(
                    sa.select(models.hosts.c.facts).where(
                        models.hosts.c.name != name,
                        models.hosts.c.seen_at > since).limit(64)):
                if facts.get('patched'):
                    return True
        return False

    def overhead(self) -> plan.Band:
        """Return what Nova takes for a migration besides, seconds."""
        with self._database.read() as session:
            return overheads.band(session)

    def etas(self, uuids: Iterable[str | None]
             ) -> dict[str, Mapping[str, Any] | None]:
        """Return what reports of running migrations have as their eta."""
        table = models.migrations
        with self._database.read() as session:
            return {uuid: summary.get('eta') for uuid, summary
                    in session.execute(sa.select(
                        table.c.uuid, table.c.summary).where(
                            table.c.uuid.in_([one for one in uuids if one]),
                            table.c.state == 'running',
                            table.c.revision > 0))}

    def write(self, function: Callable[[Writer], _Result],
              left: float = 0.0) -> _Result:
        """Return function(Writer), in a fenced transaction.

        :param left: seconds the lease has to hold from now on
        :raises LeaseLost: another engine owns the drain
        """
        def run(session: orm.Session) -> _Result:
            self._lease.fence(session, left)
            return function(Writer(session, self.drain_id))

        return self._database.retrying(run)

