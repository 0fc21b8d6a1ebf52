# SPDX-License-Identifier: Apache-2.0
"""How fast the links from this host are, for nova-compute."""

import collections
import logging
import threading
import time

from nova_dedup_migrate.agent import link
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects

LOG = logging.getLogger(__name__)


class LinkRates:
    """The links from this host, measured when they are needed.

    :param api: AgentAPI
    :param host: name of this host
    :param seconds: longest measurement, 0 for none
    :param limit: most bytes of one
    :param keep: seconds for which a rate is used again
    """

    #: Hosts remembered.
    MAX_HOSTS = 1024

    def __init__(self, api, host, seconds, limit, keep):
        self._api = api
        self._host = host
        self._seconds = seconds
        self._limit = limit
        self._keep = keep
        self._known = collections.OrderedDict()
        self._guard = threading.Lock()

    def rate(self, ctxt, host):
        """Return bytes per second to a host, None if it is not known."""
        with self._guard:
            when, rate = self._known.get(host, (-self._keep, None))
        if rate is not None and time.monotonic() - when < self._keep:
            return rate
        if not self._seconds:
            return None
        try:
            rate = link.measure(self._api.link_probe(
                ctxt, host, objects.DedupLinkRequest(
                    source=self._host, seconds=self._seconds,
                    bytes=self._limit)))
        except (errors.AgentUnavailable, OSError) as error:
            LOG.warning('The link to %s was not measured: %s', host, error)
            return None
        with self._guard:
            self._known[host] = time.monotonic(), rate
            self._known.move_to_end(host)
            while len(self._known) > self.MAX_HOSTS:
                self._known.popitem(last=False)
        return rate
