# SPDX-License-Identifier: Apache-2.0
"""How many servers leave a host at a time, and who has such a slot.

A slot is a row with host and number as its key, so two engines cannot
give the same one away, and a server has one at most.
"""

from __future__ import annotations

from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import orm

from nova_dedup_migrate.db import clock
from nova_dedup_migrate.db import models

_TABLE = models.claims
#: Nova's default of max_concurrent_live_migrations.
NOVA = 1
#: 0 there stands for no limit.
_MANY = 100


def limit(nova: int | None, *ours: int | None) -> int:
    """Return how many servers may leave a host at a time.

    :param nova: max_concurrent_live_migrations there, None: not known
    :param ours: limits of the drain and of the host, None for none
    """
    of_nova = NOVA if nova is None else nova or _MANY
    return max(1, min([of_nova, *(one for one in ours if one)]))


def claim(session: orm.Session, host: str, drain_id: str, server_id: str,
          most: int) -> bool:
    """Give a server a slot; return whether it has one.

    :param most: slots of the host
    """
    taken = {row.slot: row.server_id for row in session.execute(
        sa.select(_TABLE.c.slot, _TABLE.c.server_id).where(
            _TABLE.c.host == host))}
    if server_id in taken.values():
        return True
    if len(taken) >= most:
        return False
    free = next(slot for slot in range(most) if slot not in taken)
    try:
        with session.begin_nested():
            session.execute(sa.insert(_TABLE).values(
                host=host, slot=free, drain_id=drain_id,
                server_id=server_id, claimed_at=clock.now()))
    except db_exception.DBDuplicateEntry:
        # Another drain, or the server is leaving another host.
        return False
    return True


def free(session: orm.Session, server_id: str) -> None:
    """Free the slot of a server; does nothing if it has none."""
    session.execute(sa.delete(_TABLE).where(
        _TABLE.c.server_id == server_id))


def free_all(session: orm.Session, drain_id: str) -> None:
    """Free the slots of a drain."""
    session.execute(sa.delete(_TABLE).where(
        _TABLE.c.drain_id == drain_id))
