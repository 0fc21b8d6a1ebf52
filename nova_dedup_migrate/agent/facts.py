# SPDX-License-Identifier: Apache-2.0
"""What a migration to this host can leave out."""

from __future__ import annotations

import logging
import time

from nova_dedup_migrate import deadline
from nova_dedup_migrate import processors
from nova_dedup_migrate.agent import emulator
from nova_dedup_migrate.agent import storage_rates
from nova_dedup_migrate.identity import answer
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.images import hanging
from nova_dedup_migrate.rpc import objects

LOG = logging.getLogger(__name__)

#: Seconds an answer may take, however long the caller would wait.
MAX_BUDGET = 60.0
#: Images looked at for one answer.
MAX_NODES = 512


class Facts:
    """Makes replies.

    :param host: name of this host
    :param release: of this package
    :param site: nodes.Site
    :param emulators: emulator.Emulators
    :param rates: storage_rates.StorageRates
    :param enabled: whether the host takes part
    """

    def __init__(self, host: str, release: str, site: nodes.Site,
                 emulators: emulator.Emulators,
                 rates: storage_rates.StorageRates,
                 enabled: bool = True) -> None:
        self._host = host
        self._release = release
        self._site = site
        self._emulators = emulators
        self._rates = rates
        self._enabled = enabled

    def reply(self, request: objects.DedupFactsRequest
              ) -> objects.DedupFactsReply:
        """Return what a migration to this host can leave out.

        What cannot be found out within request.budget is left out, and
        the reply says so.
        """
        end = time.monotonic() + min(request.budget, MAX_BUDGET)
        if not self._enabled:
            return objects.DedupFactsReply(
                host=self._host, release=self._release, patched=False,
                reason='[dedup_migrate] enabled is off at the destination',
                disks=[_nothing(query, 'the destination does not take part')
                       for query in request.disks])
        found = self._emulators.describe(request.emulator)
        nodes = sum(len(query.chain) for query in request.disks)
        if nodes > MAX_NODES:
            disks = [_nothing(query, 'the instance has %d images, more than '
                              'the %d that are looked at'
                              % (nodes, MAX_NODES))
                     for query in request.disks]
        else:
            disks = [self._disk(query, request.sample_key, end)
                     for query in request.disks]
        if request.probe_storage and found.patched:
            for query, disk in zip(request.disks, disks, strict=True):
                rates = (self._rates_of(query, end)
                         if disk.copy != 'none' else None)
                if rates is not None:
                    disk.storage_rate = rates.sequential
                    disk.scattered_rate = rates.scattered
        return objects.DedupFactsReply(
            host=self._host, release=self._release,
            patched=found.patched, qemu_version=found.version,
            reason=answer.cut(found.reason), disks=disks,
            idle_processors=processors.idle())

    def _disk(self, query: objects.DedupDiskQuery, key: str | None,
              end: float) -> objects.DedupDiskAnswer:
        try:
            return hanging.STORAGE.run(end - time.monotonic(), answer.answer,
                                       query, key, self._site)
        except deadline.Late as late:
            return _nothing(query, 'the destination: %s' % late)

    def _rates_of(self, query: objects.DedupDiskQuery, end: float
                  ) -> storage_rates.Rates | None:
        """Return the rates of the first image that has content to read."""
        def first() -> storage_rates.Rates | None:
            for claim in query.chain:
                found = self._rates.rates(claim, end - time.monotonic())
                if found is not None:
                    return found
            return None

        try:
            return hanging.STORAGE.run(end - time.monotonic(), first)
        except deadline.Late as late:
            LOG.warning('How fast disk %s is read was not measured: %s. '
                        'Check the storage of this host.', query.target,
                        late)
            return None


def _nothing(query: objects.DedupDiskQuery, reason: str
             ) -> objects.DedupDiskAnswer:
    return objects.DedupDiskAnswer(target=query.target, copy='none',
                                   reason=reason)
