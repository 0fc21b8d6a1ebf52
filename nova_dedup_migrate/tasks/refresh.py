# SPDX-License-Identifier: Apache-2.0
"""Listing the page cache again while a long migration goes on.

A block migration may copy disks for hours before the first page of memory
is sent.  By then the guest caches something else.
"""

from collections.abc import Callable
import dataclasses
import math
import threading
import time

from oslo_log import log as logging

from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.planner import plan as planner_plan

LOG = logging.getLogger(__name__)


class Refresh:
    """Lists it again when it is time, in a thread of its own.

    If a guest does not answer, it is left alone from then on: the
    migration continues with its earlier list.

    :param operation: Operation with the first answer
    :param loader: pagecache.loader.PageCacheLoader
    :param limit: as that of ListPageCache
    :param clock: of seconds
    """

    def __init__(self, operation: operations.Operation,
                 loader: loading.PageCacheLoader, limit: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._operation = operation
        self._loader = loader
        self._limit = limit
        self._clock = clock
        self._answered = clock()
        self._running: threading.Thread | None = None
        self._given_up = False

    def look(self, now: progress.Progress) -> None:
        """List it again if it is worth it; never waits.

        :param now: hypervisor Progress
        """
        facts = self._operation.facts
        if (self._given_up or facts is None
                or not self._wanted(self._operation.plan, now)):
            return
        age = self._clock() - self._answered
        if not asking.again(age, self._operation.page_cache.seconds,
                            self._left(now)):
            return
        self._running = threading.Thread(
            target=self._ask, args=(
                asking.usable(facts), asking.limit(facts, self._limit)),
            daemon=True,
            name='dedup-refresh-%s' % self._operation.instance_uuid)
        self._running.start()

    def _wanted(self, plan: planner_plan.Plan | None,
                now: progress.Progress) -> bool:
        if self._running is not None and self._running.is_alive():
            return False
        source = now.dedup.source if now.dedup is not None else None
        return (plan is not None and plan.strategy != 'stock'
                and self._operation.page_cache is not None
                and self._operation.page_cache.useful
                and source is not None
                and source.state in ('armed', 'active')
                and (now.status == 'active' or not now.rounds))

    @staticmethod
    def _left(now: progress.Progress) -> float | None:
        """Return seconds until the end, None while disks are copied."""
        if not now.rounds:
            return None
        rate = now.mbps * 1e6 / 8
        return now.remaining_bytes / rate if rate > 0 else math.inf

    def _ask(self, usable: frozenset[str], limit: float) -> None:
        before = self._operation.page_cache
        try:
            found = self._loader.load(usable, limit)
        except Exception as error:
            # most of all the migration's end
            LOG.debug('Asking instance %(instance)s again: %(error)s',
                      {'instance': self._operation.instance_uuid,
                       'error': error})
            self._given_up = True
            return
        self._answered = self._clock()
        if found.useful:
            self._operation.page_cache = dataclasses.replace(
                found, requests=before.requests + 1)
        else:
            self._given_up = True
            self._operation.page_cache = dataclasses.replace(
                before, notes=before.notes + (
                    'listed again: %s: %s' % (found.outcome, found.reason),))
