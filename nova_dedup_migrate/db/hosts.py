# SPDX-License-Identifier: Apache-2.0
"""Hosts, as their agents report them, and the engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from nova_dedup_migrate.db import clock
from nova_dedup_migrate.db import errors
from nova_dedup_migrate.db import models
from nova_dedup_migrate.db import pages

_TABLE = models.hosts
_SERVICES = models.services
_CLAIMS = models.claims

#: What agents say of a replica: STATES of rpc.disk_objects.
REPLICA_STATES = ('running', 'done', 'failed', 'unknown')


def put(session: orm.Session, name: str, facts: Mapping[str, Any]) -> None:
    """Store what the agent of a host has reported."""
    values: dict[str, Any] = {'facts': facts, 'seen_at': clock.now()}
    done: Any = session.execute(sa.update(_TABLE).where(
        _TABLE.c.name == name).values(**values))
    if not done.rowcount:
        session.execute(sa.insert(_TABLE).values(name=name, revision=1,
                                                 **values))


def find(session: orm.Session, marker: str | None = None,
         limit: int = pages.DEFAULT) -> pages.Page:
    """Return a Page of hosts by name."""
    return pages.select(session, _TABLE, _TABLE.c.name, [], marker, limit)


def get(session: orm.Session, name: str) -> Mapping[str, Any]:
    """Return a host.

    :raises NotFound: no agent has reported it
    """
    row = session.execute(sa.select(_TABLE).where(
        _TABLE.c.name == name)).mappings().one_or_none()
    if row is None:
        raise errors.NotFound(kind='host', name=name)
    return dict(row)


def alive(session: orm.Session, timeout: float) -> list[str]:
    """Return the names of all hosts whose agents have reported lately.

    :param timeout: seconds without a report after which one is down
    """
    return list(session.scalars(sa.select(_TABLE.c.name).where(
        _TABLE.c.seen_at > clock.now() - timeout)))


def change(session: orm.Session, name: str, revision: int | None,
           values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Change the limits of a host; return it.

    :param revision: that it has to have, None for any
    :param values: max_outbound, link_rate
    :raises NotFound, RevisionChanged:
    """
    known = get(session, name)
    conditions = [_TABLE.c.name == name]
    if revision is not None:
        conditions.append(_TABLE.c.revision == revision)
    done: Any = session.execute(
        sa.update(_TABLE).where(*conditions).values(
            revision=_TABLE.c.revision + 1, **values))
    if not done.rowcount:
        raise errors.RevisionChanged(kind='host', name=name,
                                     now=known['revision'],
                                     expected=revision)
    return get(session, name)


def slots_in_use(session: orm.Session, names: list[str]
                 ) -> dict[str, int]:
    """Return {host: slots that servers of drains occupy}."""
    found = dict.fromkeys(names, 0)
    for name, number in session.execute(
            sa.select(_CLAIMS.c.host, sa.func.count())
            .where(_CLAIMS.c.host.in_(names)).group_by(_CLAIMS.c.host)):
        found[name] = number
    return found


def beat(session: orm.Session, values: Mapping[str, Any]) -> None:
    """Store the heartbeat of an engine.

    :param values: id, binary, host, release
    """
    done: Any = session.execute(sa.update(_SERVICES).where(
        _SERVICES.c.id == values['id']).values(seen_at=clock.now()))
    if not done.rowcount:
        session.execute(sa.insert(_SERVICES).values(
            started_at=clock.now(), seen_at=clock.now(), **values))


def services(session: orm.Session) -> list[Mapping[str, Any]]:
    """Return the engines, the newest first."""
    return [dict(row) for row in session.execute(
        sa.select(_SERVICES).order_by(_SERVICES.c.started_at.desc())
        .limit(pages.MOST)).mappings()]
