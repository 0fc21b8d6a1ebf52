# SPDX-License-Identifier: Apache-2.0
"""Tickets: which host may use the data channel, for what, once.

An agent hands a ticket out over RPC, and the host that it is for shows it
when it connects.  A ticket is 32 random bytes.  It is bound to the name of
that host, which has to be in its certificate, and to one service, which
has been made for one migration.  Only the SHA-256 of a ticket is kept, so
looking it up takes a time that says nothing about other tickets.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import hashlib
import secrets
import threading
import time
from typing import Generic
from typing import TypeVar

from nova_dedup_migrate.storage.channel import errors
from nova_dedup_migrate.storage.channel import frames

#: Seconds in which a ticket has to be used.
LIFETIME = 30.0
#: Tickets that wait to be used.
MAX_TICKETS = 1024

_Service = TypeVar('_Service')


@dataclasses.dataclass(frozen=True)
class Issued(Generic[_Service]):
    """What a ticket gives.

    :ivar host: that may use it
    :ivar migration: UUID
    :ivar service: answers the requests
    """

    host: str
    migration: str
    service: _Service
    expires: float


class Tickets(Generic[_Service]):
    """The tickets of one agent.

    :param clock: seconds
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._issued: dict[bytes, Issued[_Service]] = {}

    def issue(self, host: str, migration: str, service: _Service) -> bytes:
        """Return a new ticket.

        :raises TicketRefused: too many wait to be used
        """
        ticket = secrets.token_bytes(frames.TICKET)
        now = self._clock()
        with self._guard:
            self._issued = {key: issued
                            for key, issued in self._issued.items()
                            if issued.expires > now}
            if len(self._issued) >= MAX_TICKETS:
                raise errors.TicketRefused(
                    host=host, reason='%d tickets wait to be used'
                    % MAX_TICKETS)
            self._issued[_key(ticket)] = Issued(
                host, migration, service, now + LIFETIME)
        return ticket

    def take(self, ticket: bytes, hosts: set[str]) -> Issued[_Service]:
        """Return what a ticket gives, and make it useless.

        :param hosts: names in the certificate of the peer
        :raises TicketRefused:
        """
        shown = ', '.join(sorted(hosts))[:256] or 'a host without a name'
        with self._guard:
            issued = self._issued.pop(_key(ticket), None)
        if issued is None:
            raise errors.TicketRefused(
                host=shown, reason='it is not known, or was used')
        if issued.expires <= self._clock():
            raise errors.TicketRefused(host=shown, reason='it is too old')
        if issued.host.lower() not in hosts:
            raise errors.TicketRefused(
                host=shown, reason='it is for host %s; the certificate of '
                'that host must have its name' % issued.host)
        return issued

    def revoke(self, migration: str) -> None:
        """Make the tickets of a migration useless."""
        with self._guard:
            self._issued = {key: issued
                            for key, issued in self._issued.items()
                            if issued.migration != migration}


def _key(ticket: bytes) -> bytes:
    return hashlib.sha256(ticket).digest()
