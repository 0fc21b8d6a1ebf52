# SPDX-License-Identifier: Apache-2.0
"""Searching the guest's disks for what its memory holds.

QEMU reads them, and adds hints as it finds pages; it ends by itself when
memory begins to migrate.  So nothing has to be undone but the hints, and
a migration that copies disks first has them searched meanwhile.
"""

import dataclasses
import time

from oslo_log import log as logging

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.planner import facts as planner_facts
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tasks import base

LOG = logging.getLogger(__name__)

SKIPPED, DONE, PARTIAL, REFUSED = 'skipped', 'done', 'partial', 'refused'
_POLL_S = 0.2


@dataclasses.dataclass(frozen=True)
class Settings:
    """How the disks of an instance are indexed.

    :ivar mode: one of planner.facts.CONTENT_INDEXES
    :ivar seconds: that the migration waits for it
    :ivar rate: bytes/s, 0: no limit
    :ivar memory: bytes it may take in QEMU
    """

    mode: str = 'off'
    seconds: float = 60.0
    rate: int = 200 << 20
    memory: int = 512 << 20


class IndexContent(base.Task):
    """Add what is found on the disks to the hints of the guest's QEMU.

    :param guest: hypervisor.base.Guest on the source
    """

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest, settings: Settings) -> None:
        super().__init__(operation)
        self._guest = guest
        self._settings = settings

    def execute(self) -> None:
        given = self.operation.facts
        if given is None:
            return
        try:
            found = self._index(given)
        except errors.QmpError as error:
            found = report.ContentIndex(REFUSED, error.description)
        except Exception as error:
            self.operation.warn('indexing the disks of the guest', error)
            found = report.ContentIndex(REFUSED, str(error))
        self.operation.content_index = found
        LOG.debug('Content index of instance %(instance)s: %(found)s',
                  {'instance': self.operation.instance_uuid,
                   'found': found})
        if found.found_pages:
            guest = given.guest
            self.operation.facts = dataclasses.replace(
                given, guest=dataclasses.replace(
                    guest, hint_pages=guest.hint_pages + found.found_pages,
                    map_pages=guest.map_pages + found.found_pages,
                    index_pages=found.found_pages))

    def _index(self, given: planner_facts.Facts) -> report.ContentIndex:
        how = self._settings
        reason = asking.index_obstacle(given, how.mode, how.rate,
                                       how.seconds)
        if reason:
            return report.ContentIndex(SKIPPED, reason)
        self.operation.will(operations.UNDO_MAP)
        begun = time.monotonic()
        self._guest.index_disks(sorted(asking.usable(given)), how.rate,
                                how.memory)
        while True:
            seen = self._guest.dedup_statistics().index
            if seen is None:
                return report.ContentIndex(REFUSED, 'QEMU has no index')
            seconds = time.monotonic() - begun
            if not seen.running:
                return _result(seen, seconds)
            if operations.ABORT in self.operation.durable.requests:
                self._guest.cancel_index()
                return _result(seen, seconds, 'the migration is aborted')
            if seconds >= how.seconds:
                return _result(seen, seconds,
                               'not all was read in content_index_time')
            time.sleep(_POLL_S)


def _result(seen: statistics.IndexStatistics, seconds: float,
            reason: str = '') -> report.ContentIndex:
    reason = reason or seen.reason or ''
    return report.ContentIndex(
        DONE if seen.state == 'done' else PARTIAL, reason, pages=seen.pages,
        found_pages=seen.found_pages, disk_bytes=seen.bytes,
        read_bytes=seen.read_bytes, memory_bytes=seen.memory_bytes,
        seconds=round(seconds, 3))
