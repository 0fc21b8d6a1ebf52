# SPDX-License-Identifier: Apache-2.0
"""Adding the guest's page cache to the hints, before the plan is made."""

import dataclasses

from oslo_log import log as logging

from nova_dedup_migrate import deadline
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.planner import facts as planner_facts
from nova_dedup_migrate.tasks import base

LOG = logging.getLogger(__name__)

#: Seconds beyond the transport's own limit after which a thread that waits
#: for a guest is abandoned.
_SLACK_S = 1.0
#: Threads that may wait for guests, of all migrations of this process.
_RUNNER = deadline.Runner('the guest', 16)


class ListPageCache(base.Task):
    """Add what the guest lists to the hints of its QEMU.

    The undo log has that QEMU keeps it.

    :param guest: hypervisor.base.Guest on the source
    :param loader: pagecache.loader.PageCacheLoader, None if guests are not
        to list
    :param limit: seconds it may take, for a guest that caches little
    """

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest,
                 loader: loading.PageCacheLoader | None, limit: float) -> None:
        super().__init__(operation)
        self._guest = guest
        self._loader = loader
        self._limit = limit

    def execute(self) -> None:
        given = self.operation.facts
        if given is None:
            return
        found = self._list(given)
        self.operation.page_cache = found
        LOG.debug('Page cache of instance %(instance)s: %(found)s',
                  {'instance': self.operation.instance_uuid, 'found': found})
        guest = dataclasses.replace(
            given.guest, map_pages=0,
            map_reason=found.reason or 'the guest lists nothing')
        if found.useful and found.taken_pages:
            guest = self._with_map(guest, found)
        self.operation.facts = dataclasses.replace(given, guest=guest)

    def _list(self, given: planner_facts.Facts) -> answer.Answer:
        """Return an Answer; nothing is raised."""
        if self._loader is None:
            return answer.Answer(answer.SKIPPED, 'switched off')
        try:
            reason = asking.obstacle(given, self._limit)
            if reason:
                return answer.Answer(answer.SKIPPED, reason)
            self.operation.will(operations.UNDO_MAP)
            limit = asking.limit(given, self._limit)
            return _RUNNER.run(limit + _SLACK_S, self._request,
                               self._loader, asking.usable(given), limit)
        except deadline.Late as error:
            return answer.Answer(answer.TIMEOUT, str(error), seconds=limit)
        except Exception as error:
            self.operation.warn('listing the page cache of the guest', error)
            return answer.Answer(answer.REFUSED, str(error))

    @staticmethod
    def _request(loader: loading.PageCacheLoader, usable: frozenset[str],
                 limit: float) -> answer.Answer:
        reason = loader.obstacle()
        if reason:
            return answer.Answer(answer.UNAVAILABLE, reason)
        return loader.load(usable, limit)

    def _with_map(self, guest: planner_facts.Guest,
                  found: answer.Answer) -> planner_facts.Guest:
        try:
            pages = self._guest.dedup_statistics().hints.pages
        except errors.HypervisorError as error:
            self.operation.warn('counting hints', error)
            pages = max(guest.hint_pages, found.taken_pages)
        return dataclasses.replace(guest, hint_pages=pages,
                                   map_pages=found.taken_pages)
