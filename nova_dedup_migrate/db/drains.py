# SPDX-License-Identifier: Apache-2.0
"""Drains, their servers and events.

The API writes what an operator wishes (wish, limits, positions), engines
write what is so (state, reason, counts); so neither overwrites the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import orm

from nova_dedup_migrate.db import clock
from nova_dedup_migrate.db import errors
from nova_dedup_migrate.db import models
from nova_dedup_migrate.db import pages

_TABLE = models.drains
_SERVERS = models.drain_servers
_EVENTS = models.events

# States of a drain; engine/drain.py draws the transitions.
PENDING = 'pending'
CHECKING = 'checking'
RUNNING = 'running'
PAUSED = 'paused'
BLOCKED = 'blocked'
VERIFYING = 'verifying'
CANCELLING = 'cancelling'
CHECKED = 'checked'
DRAINED = 'drained'
PARTIAL = 'partial'
CANCELLED = 'cancelled'
FAILED = 'failed'
ACTIVE = (PENDING, CHECKING, RUNNING, PAUSED, BLOCKED, VERIFYING,
          CANCELLING)
FINAL = (CHECKED, DRAINED, PARTIAL, CANCELLED, FAILED)
STATES = ACTIVE + FINAL

# Wishes.
RUN = 'run'
PAUSE = 'pause'
CANCEL = 'cancel'
RETRY = 'retry'
WISHES = (RUN, PAUSE, CANCEL, RETRY)

# States of a server in a drain.
QUEUED = 'queued'
SUBMITTING = 'submitting'
MIGRATING = 'migrating'
CONFIRMING = 'verifying'
RETRY_WAIT = 'retry_wait'
SERVER_BLOCKED = 'blocked'
MOVED = 'moved'
STOPPED = 'stopped'
SKIPPED = 'skipped'
SERVER_FAILED = 'failed'
GONE = 'gone'
SERVER_CANCELLED = 'cancelled'
IN_FLIGHT = (SUBMITTING, MIGRATING, CONFIRMING)
WAITING = (QUEUED, RETRY_WAIT, SERVER_BLOCKED)
SERVER_FINAL = (MOVED, STOPPED, SKIPPED, SERVER_FAILED, GONE,
                SERVER_CANCELLED)
SERVER_STATES = WAITING + IN_FLIGHT + SERVER_FINAL

ORDERS = ('longest', 'working_set', 'shortest')
ON_BLOCKED = ('wait', 'skip', 'stop', 'cold')
IN_FLIGHT_FATES = ('wait', 'abort')
#: Events of a drain that are kept.
MAX_EVENTS = 5000


def create(session: orm.Session, values: Mapping[str, Any]
           ) -> tuple[Mapping[str, Any], bool]:
    """Store a drain; return it and whether it is new.

    :param values: by column, as api.handlers.drains gives them
    :raises Conflict: the host has an active drain, or the ID is another's
    """
    known = _one(session, _TABLE.c.id == values['id'])
    if known is None:
        active = _one(session, _TABLE.c.active_host == values['host'])
        if active is not None:
            raise _busy(values['host'], active['id'])
        now = clock.now()
        try:
            with session.begin_nested():
                session.execute(sa.insert(_TABLE).values(
                    active_host=values['host'], state=PENDING, reason='',
                    wish=RUN, revision=1, created_at=now, updated_at=now,
                    safe_to_power_off=False, conditions=[], **values))
        except db_exception.DBDuplicateEntry as error:
            raise _busy(values['host'], 'that was just made') from error
        return get(session, values['id']), True
    if any(known[name] != value for name, value in values.items()
           if name not in ('user_id',)):
        raise errors.Conflict(
            reason='drain %s is there with other settings; use another ID '
            'for a new one' % values['id'])
    return known, False


def _busy(host: str, active: str) -> errors.Conflict:
    return errors.Conflict(
        reason='host %s has the active drain %s; cancel it or wait for its '
        'end' % (host, active))


def _one(session: orm.Session, *conditions: Any
         ) -> Mapping[str, Any] | None:
    row = session.execute(sa.select(_TABLE).where(
        *conditions)).mappings().one_or_none()
    return None if row is None else dict(row)


def get(session: orm.Session, drain_id: str) -> Mapping[str, Any]:
    """Return a drain.

    :raises NotFound:
    """
    row = _one(session, _TABLE.c.id == drain_id)
    if row is None:
        raise errors.NotFound(kind='drain', name=drain_id)
    return row


def find(session: orm.Session, filters: Mapping[str, Any],
         marker: str | None = None, limit: int = pages.DEFAULT
         ) -> pages.Page:
    """Return a Page of drains, the newest first.

    :param filters: by column: equal
    :raises InvalidMarker: the marker is none of this list
    """
    return pages.select(
        session, _TABLE, _TABLE.c.key,
        [_TABLE.c[name] == value for name, value in filters.items()],
        pages.number(session, marker, _TABLE.c.key, _TABLE.c.id), limit,
        newest_first=True)


def due(session: orm.Session) -> list[str]:
    """Return the IDs of the drains that an engine has to work on."""
    return list(session.scalars(sa.select(_TABLE.c.id).where(
        _TABLE.c.active_host.is_not(None)).order_by(_TABLE.c.key)))


def counts(session: orm.Session, ids: Iterable[str]
           ) -> dict[str, dict[str, int]]:
    """Return {drain: {state of servers: how many}}."""
    ids = list(ids)
    found: dict[str, dict[str, int]] = {one: {} for one in ids}
    for drain_id, state, number in session.execute(
            sa.select(_SERVERS.c.drain_id, _SERVERS.c.state,
                      sa.func.count())
            .where(_SERVERS.c.drain_id.in_(ids))
            .group_by(_SERVERS.c.drain_id, _SERVERS.c.state)):
        found[drain_id][state] = number
    return found


def change(session: orm.Session, drain_id: str,
           revision: int | None, values: Mapping[str, Any]
           ) -> Mapping[str, Any]:
    """Change what an operator may change; return the drain.

    :param revision: that it has to have, None for any
    :raises NotFound, RevisionChanged, Conflict:
    """
    known = get(session, drain_id)
    conditions = [_TABLE.c.id == drain_id]
    if revision is not None:
        conditions.append(_TABLE.c.revision == revision)
    done: Any = session.execute(
        sa.update(_TABLE).where(*conditions).values(
            revision=_TABLE.c.revision + 1, updated_at=clock.now(),
            **values))
    if not done.rowcount:
        raise errors.RevisionChanged(kind='drain', name=drain_id,
                                     now=known['revision'],
                                     expected=revision)
    return get(session, drain_id)


def request(session: orm.Session, drain_id: str, wish: str,
            cancel: str | None = None) -> Mapping[str, Any]:
    """Store what an operator wishes; return the drain.

    :raises NotFound:
    :raises Conflict: the drain is in a state that does not allow it
    """
    row = get(session, drain_id)
    active = row['active_host'] is not None
    if wish == RETRY:
        if row['dry_run'] or row['state'] == CANCELLED:
            raise errors.Conflict(
                reason='drain %s is %s and cannot be continued; create a '
                'new one' % (drain_id, 'a dry run' if row['dry_run']
                             else row['state']))
        if not active:
            other = _one(session, _TABLE.c.active_host == row['host'])
            if other is not None:
                raise _busy(row['host'], other['id'])
    elif not active:
        raise errors.Conflict(
            reason='drain %s has ended, it is %s' % (drain_id,
                                                     row['state']))
    elif row['wish'] == CANCEL and wish != CANCEL:
        raise errors.Conflict(
            reason='drain %s is being cancelled; create a new one'
            % drain_id)
    try:
        with session.begin_nested():
            return change(session, drain_id, None, {
                'wish': wish, 'active_host': row['host'],
                'cancel': cancel if wish == CANCEL else row['cancel']})
    except db_exception.DBDuplicateEntry as error:
        raise _busy(row['host'], 'that was just made') from error


def delete(session: orm.Session, drain_id: str) -> None:
    """Remove a drain that has ended, with its servers and events.

    :raises NotFound:
    :raises Conflict: it is under way
    """
    row = get(session, drain_id)
    if row['active_host'] is not None:
        raise errors.Conflict(
            reason='drain %s is %s; cancel it first' % (drain_id,
                                                        row['state']))
    for table in (_SERVERS, _EVENTS):
        session.execute(sa.delete(table).where(
            table.c.drain_id == drain_id))
    session.execute(sa.delete(_TABLE).where(_TABLE.c.id == drain_id))


def servers(session: orm.Session, drain_id: str, state: str | None = None,
            marker: str | None = None, limit: int = pages.DEFAULT
            ) -> pages.Page:
    """Return a Page of the servers of a drain, as they were added.

    :raises NotFound: there is no such drain
    :raises InvalidMarker: the marker is none of this list
    """
    get(session, drain_id)
    conditions = [_SERVERS.c.drain_id == drain_id]
    if state is not None:
        conditions.append(_SERVERS.c.state == state)
    return pages.select(session, _SERVERS, _SERVERS.c.key, conditions,
                        pages.number(session, marker, _SERVERS.c.key,
                                     _SERVERS.c.server_id), limit)


def all_servers(session: orm.Session, drain_id: str
                ) -> list[dict[str, Any]]:
    """Return all servers of a drain by position."""
    return [dict(row) for row in session.execute(
        sa.select(_SERVERS).where(_SERVERS.c.drain_id == drain_id)
        .order_by(_SERVERS.c.position, _SERVERS.c.key)).mappings()]


def server(session: orm.Session, drain_id: str, server_id: str
           ) -> Mapping[str, Any]:
    """Return a server of a drain.

    :raises NotFound:
    """
    get(session, drain_id)
    row = session.execute(sa.select(_SERVERS).where(
        _SERVERS.c.drain_id == drain_id,
        _SERVERS.c.server_id == server_id)).mappings().one_or_none()
    if row is None:
        raise errors.NotFound(kind='server in drain %s' % drain_id,
                              name=server_id)
    return dict(row)


def change_server(session: orm.Session, drain_id: str, server_id: str,
                  values: Mapping[str, Any], skip: bool = False
                  ) -> Mapping[str, Any]:
    """Change what an operator may change of a server; return it.

    :param values: fixed_position, on_blocked
    :param skip: leave it where it is
    :raises NotFound:
    :raises Conflict: it is being moved, or was
    """
    row = server(session, drain_id, server_id)
    conditions = [_SERVERS.c.drain_id == drain_id,
                  _SERVERS.c.server_id == server_id]
    changes: dict[str, Any] = dict(values)
    if skip:
        conditions.append(_SERVERS.c.state.in_((*WAITING, SERVER_FAILED)))
        changes.update(state=SKIPPED, reason='skipped by an operator',
                       finished_at=clock.now())
    done: Any = session.execute(
        sa.update(_SERVERS).where(*conditions).values(
            updated_at=clock.now(), **changes))
    if not done.rowcount:
        raise errors.Conflict(
            reason='server %s is %s and cannot be skipped' % (
                server_id, row['state']))
    return server(session, drain_id, server_id)


def events(session: orm.Session, drain_id: str, marker: str | None = None,
           limit: int = pages.DEFAULT) -> pages.Page:
    """Return a Page of the events of a drain, the newest first.

    :raises NotFound: there is no such drain
    :raises InvalidMarker: the marker is none of this list
    """
    get(session, drain_id)
    return pages.select(session, _EVENTS, _EVENTS.c.id,
                        [_EVENTS.c.drain_id == drain_id],
                        pages.number(session, marker, _EVENTS.c.id,
                                     _EVENTS.c.drain_id), limit,
                        newest_first=True)
