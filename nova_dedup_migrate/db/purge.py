# SPDX-License-Identifier: Apache-2.0
"""Removing what is old, in small steps that block nobody for long."""

from __future__ import annotations

import functools
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from nova_dedup_migrate.db import drains
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import migrations
from nova_dedup_migrate.db import models

_DAY = 86400.0
#: Rows of one transaction.
_STEP = 1000


def purge(database: facade.Database, report_days: float,
          summary_days: float) -> dict[str, int]:
    """Remove what is old; return {table: rows removed}.

    :param report_days: age of reports in days
    :param summary_days: age of migrations and drains that have ended
    """
    now = database.now()
    m, d = models.migrations, models.drains
    removed = {
        'reports': _steps(database, models.reports,
                          models.reports.c.migration_uuid,
                          models.reports.c.updated_at
                          < now - report_days * _DAY),
        'migrations': _steps(database, m, m.c.id, sa.and_(
            m.c.updated_at < now - summary_days * _DAY,
            m.c.state.in_(migrations.FINAL))),
        'estimates': _steps(database, models.estimates,
                            models.estimates.c.key,
                            models.estimates.c.expires_at < now),
        'services': _steps(database, models.services,
                           models.services.c.id,
                           models.services.c.seen_at < now - _DAY)}
    old = sa.and_(d.c.state.in_(drains.FINAL), d.c.active_host.is_(None),
                  d.c.updated_at < now - summary_days * _DAY)
    with database.read() as session:
        ids = list(session.scalars(sa.select(d.c.id).where(old)))
    for drain_id in ids:
        database.retrying(functools.partial(drains.delete,
                                            drain_id=drain_id))
    removed['drains'] = len(ids)
    return removed


def _steps(database: facade.Database, table: sa.Table,
           key: sa.Column[Any], condition: Any) -> int:
    removed = 0

    def step(session: orm.Session) -> int:
        keys = list(session.scalars(
            sa.select(key).where(condition).limit(_STEP)))
        if keys:
            session.execute(sa.delete(table).where(key.in_(keys)))
        return len(keys)

    while True:
        done = database.retrying(step)
        removed += done
        if done < _STEP:
            return removed


