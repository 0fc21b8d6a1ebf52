# SPDX-License-Identifier: Apache-2.0
"""Leases: which engine works on what.

::

    free or expired --take--> held --renew--> held --release--> free
                                |
                                +-- not renewed --> expired

A lease is a row that engines change by compare-and-swap.  Each take
raises its generation.  The work that a lease guards is written in
transactions that begin with Lease.fence(): it counts a write in the row
if owner and generation are still those of the caller and the lease has
not expired, and raises LeaseLost otherwise.  The transaction holds the
row until its commit, so nobody takes the lease meanwhile; Galera rolls
back one of two such transactions on different nodes.

Times are those of the database.  An engine whose own clock is wrong, or
that was stopped for a while, can lose its leases and nothing else.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import orm

from nova_dedup_migrate.db import clock
from nova_dedup_migrate.db import errors
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import models

_TABLE = models.leases


@dataclasses.dataclass(frozen=True)
class Lease:
    """A lease as its owner has it.

    :ivar takeover: whether another owner had let it expire
    """

    name: str
    owner: str
    generation: int
    takeover: bool = False

    def fence(self, session: orm.Session, left: float = 0.0) -> None:
        """Begin a transaction of the owner.

        :param left: seconds the lease has to hold from now on
        :raises LeaseLost: the caller owns it no more
        """
        done = session.execute(
            sa.update(_TABLE).where(
                *_mine(self), _TABLE.c.expires_at > clock.now() + left)
            .values(writes=_TABLE.c.writes + 1))
        if not _changed(done):
            raise errors.LeaseLost(name=self.name, owner=self.owner,
                                   generation=self.generation)


class Leases:
    """Leases of one engine.

    :param database: facade.Database
    :param owner: UUID of the engine
    :param seconds: for which a lease holds
    """

    def __init__(self, database: facade.Database, owner: str,
                 seconds: float = 60.0) -> None:
        self._database = database
        self._owner = owner
        self._seconds = seconds

    def take(self, name: str) -> Lease | None:
        """Return a new Lease if it is free or expired, else None."""
        try:
            return self._database.retrying(
                lambda session: self._take(session, name))
        except db_exception.DBDuplicateEntry:
            # Another engine has made the row first.
            return None

    def _take(self, session: orm.Session, name: str) -> Lease | None:
        row = session.execute(
            sa.select(_TABLE).where(_TABLE.c.name == name)).one_or_none()
        until = clock.now() + self._seconds
        if row is None:
            session.execute(sa.insert(_TABLE).values(
                name=name, owner=self._owner, generation=1,
                expires_at=until, writes=0))
            return Lease(name, self._owner, 1)
        done = session.execute(
            sa.update(_TABLE).where(
                _TABLE.c.name == name,
                _TABLE.c.generation == row.generation,
                _TABLE.c.expires_at <= clock.now())
            .values(owner=self._owner, generation=row.generation + 1,
                    expires_at=until))
        if not _changed(done):
            return None
        return Lease(name, self._owner, row.generation + 1,
                     takeover=row.expires_at > 0
                     and row.owner != self._owner)

    def renew(self, lease: Lease) -> bool:
        """Prolong a lease; return whether it is still the caller's."""
        def renew(session: orm.Session) -> bool:
            return _changed(session.execute(
                sa.update(_TABLE).where(
                    *_mine(lease), _TABLE.c.expires_at > clock.now())
                .values(expires_at=clock.now() + self._seconds,
                        writes=_TABLE.c.writes + 1)))

        return self._database.retrying(renew)

    def release(self, lease: Lease) -> None:
        """Free a lease, for the next engine to take at once."""
        self._database.retrying(lambda session: session.execute(
            sa.update(_TABLE).where(*_mine(lease)).values(
                expires_at=0.0, writes=_TABLE.c.writes + 1)))


def _mine(lease: Lease) -> tuple[Any, ...]:
    return (_TABLE.c.name == lease.name, _TABLE.c.owner == lease.owner,
            _TABLE.c.generation == lease.generation)


def _changed(result: Any) -> bool:
    return bool(result.rowcount)
