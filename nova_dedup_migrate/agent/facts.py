# SPDX-License-Identifier: Apache-2.0
"""Answering what a migration to this host can leave out."""

import logging
import time

from nova_dedup_migrate import deadline
from nova_dedup_migrate.identity import answer
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

    def __init__(self, host, release, site, emulators, rates, enabled=True):
        self._host = host
        self._release = release
        self._site = site
        self._emulators = emulators
        self._rates = rates
        self._enabled = enabled

    def reply(self, request):
        """Return a DedupFactsReply to a DedupFactsRequest.

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
        emulator = self._emulators.describe(request.emulator)
        nodes = sum(len(query.chain) for query in request.disks)
        if nodes > MAX_NODES:
            disks = [_nothing(query, 'the instance has %d images, more than '
                              'the %d that are looked at'
                              % (nodes, MAX_NODES))
                     for query in request.disks]
        else:
            disks = [self._disk(query, request.sample_key, end)
                     for query in request.disks]
        if request.probe_storage and emulator.patched:
            for query, disk in zip(request.disks, disks, strict=True):
                if disk.copy != 'none':
                    disk.storage_rate = self._rate(query, end)
        return objects.DedupFactsReply(
            host=self._host, release=self._release,
            patched=emulator.patched, qemu_version=emulator.version,
            reason=answer.cut(emulator.reason), disks=disks)

    def _disk(self, query, key, end):
        try:
            return hanging.STORAGE.run(end - time.monotonic(), answer.answer,
                                query, key, self._site)
        except deadline.Late as late:
            return _nothing(query, 'the destination: %s' % late)

    def _rate(self, query, end):
        """Return the rate of the first image that has content to read."""
        def first():
            for claim in query.chain:
                rate = self._rates.rate(claim, end - time.monotonic())
                if rate is not None:
                    return rate
            return None

        try:
            return hanging.STORAGE.run(end - time.monotonic(), first)
        except deadline.Late as late:
            LOG.warning('Disk %s was not measured: %s', query.target, late)
            return None


def _nothing(query, reason):
    return objects.DedupDiskAnswer(target=query.target, copy='none',
                                   reason=reason)
