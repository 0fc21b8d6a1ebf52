# SPDX-License-Identifier: Apache-2.0
"""Pages of lists: each continues after the key of the last row."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from nova_dedup_migrate.db import errors

#: Rows of a page, and the most that one may request.
DEFAULT = 100
MOST = 1000


@dataclasses.dataclass(frozen=True)
class Page:
    """Rows of a list.

    :ivar rows: as mappings, by name of the column
    :ivar marker: of the next page, None if this is the last one
    """

    rows: list[Mapping[str, Any]]
    marker: str | None


def select(session: orm.Session, table: sa.Table, key: sa.Column[Any],
           conditions: list[Any], marker: Any, limit: int,
           newest_first: bool = False) -> Page:
    """Return a Page, ordered by the key.

    :param key: column whose values are unique
    :param conditions: of the rows
    :param marker: key of the last row of the page before, or None
    :param limit: rows of a page
    """
    if marker is not None:
        conditions = [*conditions,
                      key < marker if newest_first else key > marker]
    found = session.execute(
        sa.select(table).where(*conditions)
        .order_by(key.desc() if newest_first else key).limit(limit + 1)
    ).mappings().all()
    return page([dict(row) for row in found], key.name, limit)


def page(rows: list[dict[str, Any]], key: str, limit: int) -> Page:
    """Return a Page of rows, of which there may be one too many."""
    more = len(rows) > limit
    kept: list[Mapping[str, Any]] = list(rows[:limit])
    return Page(kept, str(kept[-1][key]) if more else None)


def number(session: orm.Session, marker: str | None, key: sa.Column[Any],
           identifier: sa.Column[Any]) -> int | None:
    """Return the key that a marker stands for.

    :param marker: of a Page, or the ID of the last row, as clients of
        OpenStack send it
    :raises InvalidMarker: it is neither
    """
    if marker is None:
        return None
    if len(marker) == 36:
        found = session.scalar(sa.select(key).where(identifier == marker)
                               .limit(1))
        if found is None:
            raise errors.InvalidMarker(marker=marker)
        return int(found)
    if not (marker.isascii() and marker.isdigit() and len(marker) < 19):
        raise errors.InvalidMarker(marker=marker[:80])
    return int(marker)
