# SPDX-License-Identifier: Apache-2.0
"""One-use permissions to read a backup.

::

    issued --taken by its host in time--> in use --released--> gone
       |                                    |
       | lifetime over, or close()          | close(): the session ends
       v                                    v
      gone                                 gone

A ticket is taken once, by a connection whose certificate names its host.
Whoever else presents it learns nothing but that it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import hashlib
import secrets
import threading
import time
from typing import Any

from cinder_backup_assist import errors


@dataclasses.dataclass(frozen=True)
class Grant:
    """What a ticket permits.

    :ivar host: that may connect
    :ivar chain: Cinder's objects, the newest backup first
    :ivar expires: by the clock
    """

    host: str
    chain: list[Any]
    expires: float

    @property
    def backup_id(self) -> str:
        return self.chain[0].id


class Tickets:
    """The tickets of this daemon.

    :param host: of the daemon, for messages
    :param lifetime: seconds until a ticket has to be taken
    :param limit: tickets that are issued or in use
    """

    def __init__(self, host: str, lifetime: float, limit: int,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self._host = host
        self._lifetime = lifetime
        self._clock = clock
        self._guard = threading.Lock()
        # by digest: a comparison then takes no time that tells of the key
        self._issued: dict[bytes, Grant] = {}
        self._used: dict[bytes, Callable[[], None]] = {}

    def issue(self, host: str, chain: list[Any]) -> str:
        """Return a new ticket.

        :raises Overloaded: there are as many as may be
        """
        with self._guard:
            self._expire()
            if len(self._issued) + len(self._used) >= self.limit:
                raise errors.Overloaded(
                    host=self._host, reason='it has %d tickets of at most %d'
                    % (len(self._issued) + len(self._used), self.limit))
            ticket = secrets.token_hex(32)
            self._issued[_key(ticket)] = Grant(
                host, chain, self._clock() + self._lifetime)
        return ticket

    def take(self, ticket: str, host_names: list[str],
             abort: Callable[[], None]) -> Grant:
        """Begin to use a ticket.

        :param host_names: of the certificate of who presents it
        :param abort: ends its session, is called by close()
        :raises TicketRefused:
        """
        with self._guard:
            self._expire()
            grant = self._issued.get(_key(ticket))
            if grant is None:
                raise errors.TicketRefused(
                    reason='it is unknown, used or expired')
            if not names_host(host_names, grant.host):
                # It stays with the host that it is for.
                raise errors.TicketRefused(
                    reason='it is for another host than %s'
                    % ', '.join(host_names))
            del self._issued[_key(ticket)]
            self._used[_key(ticket)] = abort
            return grant

    def release(self, ticket: str) -> None:
        """Say that the session of a ticket has ended."""
        with self._guard:
            self._used.pop(_key(ticket), None)

    def close(self, ticket: str) -> bool:
        """Revoke a ticket, end its session; return whether it was known."""
        with self._guard:
            issued = self._issued.pop(_key(ticket), None)
            abort = self._used.get(_key(ticket))
        if abort is not None:
            abort()
        return issued is not None or abort is not None

    def close_all(self) -> None:
        with self._guard:
            self._issued.clear()
            used = list(self._used.values())
        for abort in used:
            abort()

    def count(self) -> int:
        """Return how many are issued or in use."""
        with self._guard:
            self._expire()
            return len(self._issued) + len(self._used)

    def _expire(self) -> None:
        now = self._clock()
        for key in [key for key, grant in self._issued.items()
                    if grant.expires <= now]:
            del self._issued[key]


def names_host(names: list[str], host: str) -> bool:
    """Return whether names of a certificate are those of a host.

    Nova's name of a host may be the first label of its full name.
    """
    host = host.lower()
    return any(name.lower() == host
               or ('.' not in host and name.lower().split('.')[0] == host)
               for name in names)


def _key(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode()).digest()
