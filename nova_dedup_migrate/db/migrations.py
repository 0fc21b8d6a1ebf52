# SPDX-License-Identifier: Apache-2.0
"""Migrations and their reports."""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import Any
import zlib

import sqlalchemy as sa
from sqlalchemy import orm

from nova_dedup_migrate.db import clock
from nova_dedup_migrate.db import errors
from nova_dedup_migrate.db import models
from nova_dedup_migrate.db import pages

_TABLE = models.migrations
_REPORTS = models.reports
#: A report has some ten kilobytes; what inflates to more is none.
MAX_REPORT = 4 * 1024 * 1024
FINAL = ('completed', 'cancelled', 'failed')
STATES = ('running', *FINAL)


def find(session: orm.Session, filters: Mapping[str, Any],
         marker: str | None = None, limit: int = pages.DEFAULT
         ) -> pages.Page:
    """Return a Page of migrations, the newest first.

    :param filters: state, host (source or destination), server_id,
        project_id, drain_id: equal; updated_since: seconds since the
        epoch.  With that one the order is that of the changes, the oldest
        first, so that a reader can follow them.
    :raises InvalidMarker: the marker is none of this list
    """
    filters = dict(filters)
    host = filters.pop('host', None)
    since = filters.pop('updated_since', None)
    conditions = [_TABLE.c[name] == value
                  for name, value in filters.items()]
    if since is not None:
        if host is not None:
            conditions.append(sa.or_(_TABLE.c.source == host,
                                     _TABLE.c.destination == host))
        return _changes(session, conditions, since, marker, limit)
    key = pages.number(session, marker, _TABLE.c.id, _TABLE.c.uuid)
    if host is None:
        return pages.select(session, _TABLE, _TABLE.c.id, conditions, key,
                            limit, newest_first=True)
    # Each of the two has an index of its own; an OR has none.
    rows = {}
    for column in (_TABLE.c.source, _TABLE.c.destination):
        for row in pages.select(session, _TABLE, _TABLE.c.id,
                                [*conditions, column == host], key,
                                limit + 1, newest_first=True).rows:
            rows[row['id']] = dict(row)
    return pages.page([rows[key] for key in sorted(rows, reverse=True)],
                      'id', limit)


def _changes(session: orm.Session, conditions: list[Any], since: float,
             marker: str | None, limit: int) -> pages.Page:
    conditions = [*conditions, _TABLE.c.updated_at >= since]
    if marker is not None:
        at, key = _change(session, marker)
        conditions.append(sa.or_(
            _TABLE.c.updated_at > at,
            sa.and_(_TABLE.c.updated_at == at, _TABLE.c.id > key)))
    found = session.execute(
        sa.select(_TABLE).where(*conditions)
        .order_by(_TABLE.c.updated_at, _TABLE.c.id).limit(limit + 1)
    ).mappings().all()
    kept = [dict(row) for row in found[:limit]]
    last = kept[-1] if len(found) > limit else None
    return pages.Page(
        list(kept), None if last is None else
        '%r_%d' % (last['updated_at'], last['id']))


def _change(session: orm.Session, marker: str) -> tuple[float, int]:
    """Return time and key that a marker of changes stands for."""
    row = session.execute(sa.select(_TABLE.c.updated_at, _TABLE.c.id).where(
        _TABLE.c.uuid == marker)).one_or_none()
    if row is not None:
        return row.updated_at, row.id
    found = re.fullmatch(r'([0-9]{1,12}(?:\.[0-9]{1,20})?)_([0-9]{1,18})',
                         marker)
    if found is None:
        raise errors.InvalidMarker(marker=marker[:80])
    return float(found.group(1)), int(found.group(2))


def get(session: orm.Session, uuid: str) -> Mapping[str, Any]:
    """Return a migration.

    :raises NotFound:
    """
    row = session.execute(sa.select(_TABLE).where(
        _TABLE.c.uuid == uuid)).mappings().one_or_none()
    if row is None:
        raise errors.NotFound(kind='migration', name=uuid)
    return dict(row)


def report(session: orm.Session, uuid: str) -> bytes:
    """Return the report of a migration, JSON.

    :raises NotFound: there is none
    """
    data = session.scalar(sa.select(_REPORTS.c.data).where(
        _REPORTS.c.migration_uuid == uuid))
    if data is None:
        raise errors.NotFound(kind='report of migration', name=uuid)
    return zlib.decompressobj().decompress(data, MAX_REPORT)


def put(session: orm.Session, values: Mapping[str, Any], data: bytes
        ) -> bool:
    """Store a report; return whether it changed anything.

    An older revision than the stored one changes nothing, so that a
    message may be delivered twice or late.

    :param values: by column
    :param data: the report, JSON
    """
    uuid, revision = values['uuid'], values['revision']
    known = _known(session, uuid)
    if known is not None and known.revision >= revision:
        return False
    _write(session, known, values)
    _put_report(session, uuid, revision, zlib.compress(data))
    return True


def note(session: orm.Session, values: Mapping[str, Any],
         extra: Mapping[str, Any]) -> None:
    """Store what Nova has of a migration.

    A report has more and is closer to the truth; of a migration that has
    one, only what reports lack is taken.

    :param values: by column, with revision 0
    :param extra: columns that no report has
    """
    known = _known(session, values['uuid'])
    if known is None or known.revision == 0:
        _write(session, known, {**values, **extra})
    elif any(getattr(known, name) != value
             for name, value in extra.items()):
        _write(session, known, extra)


def set_drain(session: orm.Session, uuid: str, drain_id: str) -> None:
    """Store which drain has requested a migration, if it is known."""
    session.execute(sa.update(_TABLE).where(
        _TABLE.c.uuid == uuid).values(drain_id=drain_id))


def _known(session: orm.Session, uuid: str) -> Any:
    return session.execute(sa.select(_TABLE).where(
        _TABLE.c.uuid == uuid).with_for_update()).one_or_none()


def _write(session: orm.Session, known: Any,
           values: Mapping[str, Any]) -> None:
    if known is None:
        session.execute(sa.insert(_TABLE).values(
            updated_at=clock.now(), **values))
    else:
        session.execute(sa.update(_TABLE).where(_TABLE.c.id == known.id)
                        .values(updated_at=clock.now(), **values))


def _put_report(session: orm.Session, uuid: str, revision: int,
                packed: bytes) -> None:
    values = {'revision': revision, 'data': packed,
              'updated_at': clock.now()}
    done: Any = session.execute(sa.update(_REPORTS).where(
        _REPORTS.c.migration_uuid == uuid).values(**values))
    if not done.rowcount:
        session.execute(sa.insert(_REPORTS).values(migration_uuid=uuid,
                                                   **values))
