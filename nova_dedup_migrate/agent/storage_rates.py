# SPDX-License-Identifier: Apache-2.0
"""How fast this host reads its disks, measured when it is needed."""

import collections
import logging
import os
import threading
import time

from nova_dedup_migrate.images import access
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.images import rbd

LOG = logging.getLogger(__name__)

#: File systems and devices remembered.
MAX_KNOWN = 256


class StorageRates:
    """Rates by file system, block device or pool.

    :param site: nodes.Site
    :param seconds: longest measurement, 0 for none
    :param limit: most bytes of one
    :param keep: seconds for which a rate is used again
    """

    def __init__(self, site, seconds, limit, keep):
        self._site = site
        self._seconds = seconds
        self._limit = limit
        self._keep = keep
        self._known = collections.OrderedDict()
        self._guard = threading.Lock()
        # Two at a time would each measure a part, and load the storage.
        self._measuring = threading.Lock()

    def rate(self, claim, patience):
        """Return bytes per second, None if it is not known.

        While storage hangs, so does this.

        :param claim: DedupNodeClaim of an image to read
        :param patience: seconds to wait for other measurements
        """
        if not self._seconds or claim.kind not in ('file', 'block', 'rbd'):
            return None
        try:
            place = self._place(claim)
            rate = self._recall(place)
            if rate is not None:
                return rate
            if not self._measuring.acquire(timeout=max(0.0, patience)):
                return None
            try:
                rate = self._recall(place) or self._measure(claim)
            finally:
                self._measuring.release()
        except (OSError, paths.PathRefused, rbd.RbdUnavailable) as error:
            LOG.warning('%s was not measured: %s', claim.path, error)
            return None
        if rate is not None:
            self._remember(place, rate)
        return rate

    def _place(self, claim):
        """Return what has one rate."""
        if claim.kind == 'rbd':
            return 'rbd', claim.path.rpartition('/')[0]
        opener = (paths.open_path if claim.kind == 'file'
                  else paths.open_device)
        with opener(claim.path, self._site.roots) as handle:
            status = os.fstat(handle)
        return claim.kind, (status.st_dev if claim.kind == 'file'
                            else status.st_rdev)

    def _measure(self, claim):
        if claim.kind == 'rbd':
            rate = rbd.read_rate(
                claim.path, claim.user, self._site.key(claim.secret),
                self._site.ceph_conf, self._limit, self._seconds)
        else:
            rate = access.read_rate(
                claim.path, self._site.roots, self._limit, self._seconds,
                block=claim.kind == 'block')
        LOG.info('%s is read at %s bytes per second', claim.path,
                 rate and int(rate))
        return rate

    def _recall(self, place):
        with self._guard:
            when, rate = self._known.get(place, (0.0, None))
        return rate if time.monotonic() - when < self._keep else None

    def _remember(self, place, rate):
        with self._guard:
            self._known[place] = time.monotonic(), rate
            self._known.move_to_end(place)
            while len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
