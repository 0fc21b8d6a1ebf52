# SPDX-License-Identifier: Apache-2.0
"""How fast this host reads its disks, measured when it is needed."""

from __future__ import annotations

import collections
import dataclasses
import logging
import os
import threading
import time

from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.images import access
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.images import rbd
from nova_dedup_migrate.rpc import objects

LOG = logging.getLogger(__name__)

#: File systems and devices remembered.
MAX_KNOWN = 256


@dataclasses.dataclass(frozen=True)
class Rates:
    """Bytes per second; see images.rates.

    :ivar scattered: None if it was not measured
    """

    sequential: float
    scattered: float | None = None


class StorageRates:
    """Rates by file system, block device or pool.

    :param site: nodes.Site
    :param seconds: longest measurement, 0 for none
    :param limit: most bytes of one
    :param keep: seconds for which a rate is used again
    """

    def __init__(self, site: nodes.Site, seconds: float, limit: int,
                 keep: float) -> None:
        self._site = site
        self._seconds = seconds
        self._limit = limit
        self._keep = keep
        self._known: collections.OrderedDict[
            tuple[str, str | int], tuple[float, Rates | None]] = (
                collections.OrderedDict())
        self._guard = threading.Lock()
        # Two at a time would each measure a part, and load the storage.
        self._measuring = threading.Lock()

    def rates(self, claim: objects.DedupNodeClaim, patience: float
              ) -> Rates | None:
        """Return the Rates of an image's storage, None if not known.

        While storage hangs, so does this.

        :param claim: DedupNodeClaim of an image to read
        :param patience: seconds to wait for other measurements
        """
        if not self._seconds or claim.kind not in ('file', 'block', 'rbd'):
            return None
        try:
            place = self._place(claim)
            found = self._recall(place)
            if found is not None:
                return found
            if not self._measuring.acquire(timeout=max(0.0, patience)):
                return None
            try:
                found = self._recall(place) or self._measure(claim)
            finally:
                self._measuring.release()
        except (OSError, paths.PathRefused, rbd.RbdUnavailable) as error:
            LOG.warning('How fast %s is read was not measured: %s. The '
                        'migration is planned as if it were fast enough.',
                        claim.path, error)
            return None
        if found is not None:
            self._remember(place, found)
        return found

    def _place(self, claim: objects.DedupNodeClaim) -> tuple[str, str | int]:
        """Return what has one rate."""
        if claim.kind == 'rbd':
            return 'rbd', claim.path.rpartition('/')[0]
        opener = (paths.open_path if claim.kind == 'file'
                  else paths.open_device)
        with opener(claim.path, self._site.roots) as handle:
            status = os.fstat(handle)
        return claim.kind, (status.st_dev if claim.kind == 'file'
                            else status.st_rdev)

    def _measure(self, claim: objects.DedupNodeClaim) -> Rates | None:
        if claim.kind == 'rbd':
            found = rbd.read_rates(
                claim.path, claim.user, self._site.key(claim.secret),
                self._site.ceph_conf, self._limit, self._seconds)
        else:
            found = access.read_rates(
                claim.path, self._site.roots, self._limit, self._seconds,
                block=claim.kind == 'block')
        sequential, scattered = found
        if sequential is None:
            return None
        LOG.info('%s is read at %d bytes per second, scattered pages at %s',
                 claim.path, sequential, scattered and int(scattered))
        return Rates(sequential, scattered)

    def _recall(self, place: tuple[str, str | int]) -> Rates | None:
        with self._guard:
            when, found = self._known.get(place, (0.0, None))
        return found if time.monotonic() - when < self._keep else None

    def _remember(self, place: tuple[str, str | int], found: Rates) -> None:
        with self._guard:
            self._known[place] = time.monotonic(), found
            self._known.move_to_end(place)
            while len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
