# SPDX-License-Identifier: Apache-2.0
"""How fast the links from this host are.

A rate is measured when the first migration to a host is planned, and
again now and then for as long as migrations to it are, so that later
ones need not wait.  Nothing is measured while a migration of or to this
host is under way: each would take bandwidth from the other.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
import dataclasses
import logging
import threading
import time
from typing import Any

from nova_dedup_migrate.agent import errors as agent_errors
from nova_dedup_migrate.agent import link
from nova_dedup_migrate.agent import peers as agent_peers
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects

LOG = logging.getLogger(__name__)

#: Hosts remembered.
MAX_HOSTS = 1024
#: Seconds after a request for which a rate is kept up to date.
WANTED = 3600.0
#: Share of a rate's time after which it is refreshed.
_REFRESH = 0.75
#: Seconds before a destination that is busy gets the request again.
_AGAIN = 0.5


@dataclasses.dataclass
class _Link:
    """What is known of one link; rate None: never measured."""

    rate: float | None = None
    measured: float = 0.0
    wanted: float = 0.0


@dataclasses.dataclass(frozen=True)
class LinkRate:
    """:ivar rate: bytes per second, None if it is not known
    :ivar age: seconds since it was measured
    :ivar reason: why it is not known, or not a recent one
    """

    rate: float | None
    age: float | None
    reason: str = ''


class LinkRates:
    """The links from this host.

    :param api: AgentAPI
    :param host: name of this host
    :param peers: agent.peers.Peers
    :param seconds: longest measurement, 0 for none
    :param limit: most bytes of one
    :param keep: seconds for which a rate is used again
    :param is_busy: callable, whether a migration is under way here
    """

    def __init__(self, api: rpc_api.AgentAPI, host: str,
                 peers: agent_peers.Peers, seconds: float, limit: int,
                 keep: float, is_busy: Callable[[], bool]) -> None:
        self._api = api
        self._host = host
        self._peers = peers
        self._seconds = seconds
        self._limit = limit
        self._keep = keep
        self._is_busy = is_busy
        self._links: collections.OrderedDict[str, _Link] = (
            collections.OrderedDict())
        self._guard = threading.Lock()
        # Two at a time would each measure a part.
        self._measuring = threading.Lock()

    def rate(self, ctxt: Any, host: str, patience: float) -> LinkRate:
        """Return the LinkRate to a host, measured now if it is not recent.

        :param patience: seconds, also for other measurements to end
        """
        end = time.monotonic() + patience
        with self._guard:
            known = self._links.setdefault(host, _Link())
            known.wanted = time.monotonic()
            self._links.move_to_end(host)
            while len(self._links) > MAX_HOSTS:
                self._links.popitem(last=False)
        if self._is_recent(known):
            return _answer(known)
        if not self._seconds:
            return _answer(known, '[dedup_migrate] probe_time is 0')
        if self._is_busy():
            return _answer(known, 'a migration of or to this host is under '
                           'way')
        if not self._measuring.acquire(timeout=max(0.0, patience)):
            return _answer(known, 'other links are being measured')
        try:
            reason = ('' if self._is_recent(known)
                      else self._measure(ctxt, host, known, end))
        finally:
            self._measuring.release()
        return _answer(known, reason)

    def last(self, host: str, reason: str) -> LinkRate:
        """Return what is known of a link, however old."""
        with self._guard:
            return _answer(self._links.get(host, _Link()), reason)

    def best(self) -> float | None:
        """Return the highest rate that was measured, None: none was."""
        with self._guard:
            return max((known.rate for known in self._links.values()
                        if known.rate is not None), default=None)

    def refresh(self, ctxt: Any) -> None:
        """Measure the links that are wanted and soon too old again."""
        if not self._seconds or not self._keep:
            return
        now = time.monotonic()
        with self._guard:
            due = [(host, known) for host, known in self._links.items()
                   if now - known.wanted < WANTED
                   and now - known.measured > _REFRESH * self._keep]
        for host, known in due:
            if self._is_busy():
                return
            with self._measuring:
                self._measure(ctxt, host, known, 0.0)

    def _is_recent(self, known: _Link) -> bool:
        return (known.rate is not None
                and time.monotonic() - known.measured < self._keep)

    def _measure(self, ctxt: Any, host: str, known: _Link, end: float
                 ) -> str:
        """Measure a link, return why that failed.

        :param end: until when to wait for a destination that is busy
        """
        request = objects.DedupLinkRequest(
            source=self._host, seconds=self._seconds, bytes=self._limit)
        while True:
            try:
                offer = self._api.link_probe(ctxt, host, request)
                rate = link.measure(offer, request,
                                    *self._peers.resolve(host, offer))
            except errors.AgentRefused as error:
                if (error.kind == 'ProbeRefused' and time.monotonic()
                        + _AGAIN + self._seconds < end):
                    time.sleep(_AGAIN)
                    continue
                problem = str(error)
            except (errors.AgentUnavailable, agent_errors.OfferRefused,
                    OSError) as error:
                problem = str(error)
            else:
                if rate is None:
                    problem = 'no bytes arrived there'
                else:
                    known.rate, known.measured = rate, time.monotonic()
                    return ''
            LOG.warning('The link to %s was not measured: %s. Migrations '
                        'to it are planned with an earlier rate, or with '
                        'live_migration_bandwidth.', host, problem)
            return problem


def _answer(known: _Link, reason: str = '') -> LinkRate:
    if known.rate is None:
        return LinkRate(None, None, reason)
    return LinkRate(known.rate, time.monotonic() - known.measured, reason)
