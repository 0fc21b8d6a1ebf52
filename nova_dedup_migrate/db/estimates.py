# SPDX-License-Identifier: Apache-2.0
"""Estimates: requested by the API, made by whichever engine is first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from nova_dedup_migrate.db import clock
from nova_dedup_migrate.db import errors
from nova_dedup_migrate.db import models
from nova_dedup_migrate.db import pages

_TABLE = models.estimates

PENDING = 'pending'
RUNNING = 'running'
DONE = 'done'
FAILED = 'failed'
STATES = (PENDING, RUNNING, DONE, FAILED)
#: Seconds for which an engine may work on one.
TURN_S = 120.0


def create(session: orm.Session, values: Mapping[str, Any],
           lifetime: float, most: int) -> Mapping[str, Any]:
    """Store a request; return it.

    :param values: id, server_id, host, project_id
    :param lifetime: seconds
    :param most: estimates of a project that may wait for an engine
    :raises Conflict: too many wait
    """
    waiting = session.scalar(
        sa.select(sa.func.count()).select_from(_TABLE).where(
            _TABLE.c.state.in_((PENDING, RUNNING)),
            _TABLE.c.expires_at > clock.now(),
            _TABLE.c.project_id.is_(None) if values['project_id'] is None
            else _TABLE.c.project_id == values['project_id'])) or 0
    if waiting >= most:
        raise errors.Conflict(
            reason='%d estimates wait for an engine; check that one runs '
            'and try again later' % waiting)
    session.execute(sa.insert(_TABLE).values(
        state=PENDING, error='', created_at=clock.now(),
        expires_at=clock.now() + lifetime, **values))
    return get(session, values['id'])


def get(session: orm.Session, estimate_id: str) -> Mapping[str, Any]:
    """Return an estimate.

    :raises NotFound: there is none, or it has expired
    """
    row = session.execute(sa.select(_TABLE).where(
        _TABLE.c.id == estimate_id, _TABLE.c.expires_at > clock.now())
    ).mappings().one_or_none()
    if row is None:
        raise errors.NotFound(kind='estimate', name=estimate_id)
    return dict(row)


def find(session: orm.Session, filters: Mapping[str, Any],
         marker: str | None = None, limit: int = pages.DEFAULT
         ) -> pages.Page:
    """Return a Page of estimates, the newest first, without results."""
    conditions = [_TABLE.c[name] == value
                  for name, value in filters.items()]
    return pages.select(
        session, _TABLE, _TABLE.c.key,
        [*conditions, _TABLE.c.expires_at > clock.now()],
        pages.number(session, marker, _TABLE.c.key, _TABLE.c.id), limit,
        newest_first=True)


def claim(session: orm.Session) -> Mapping[str, Any] | None:
    """Return an estimate for the caller to make, None if none waits."""
    free = sa.or_(_TABLE.c.state == PENDING,
                  sa.and_(_TABLE.c.state == RUNNING,
                          _TABLE.c.claimed_until < clock.now()))
    for row in session.execute(
            sa.select(_TABLE.c.id).where(
                free, _TABLE.c.expires_at > clock.now())
            .order_by(_TABLE.c.key).limit(8)).all():
        done: Any = session.execute(
            sa.update(_TABLE).where(_TABLE.c.id == row.id, free).values(
                state=RUNNING, claimed_until=clock.now() + TURN_S))
        if done.rowcount:
            return get(session, row.id)
    return None


def finish(session: orm.Session, estimate_id: str, result: str | None,
           error: str = '') -> None:
    """Store the outcome.

    :param result: JSON, None if it failed
    :param error: why it failed
    """
    session.execute(sa.update(_TABLE).where(_TABLE.c.id == estimate_id)
                    .values(state=FAILED if result is None else DONE,
                            result=result, error=error[:2000],
                            claimed_until=None))
