# SPDX-License-Identifier: Apache-2.0
"""How far a migration is (query-migrate and query-x-dedup)."""

import collections
import dataclasses

from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import statistics

#: States of query-migrate after which nothing more happens by itself.
FINAL = ('completed', 'failed', 'cancelled')
#: States in which the guest runs at the destination already.
POSTCOPY = ('postcopy-active', 'postcopy-paused', 'postcopy-recover-setup',
            'postcopy-recover')


@dataclasses.dataclass(frozen=True)
class PagePaths:
    """Pages by the path they took, each counted as often as it went."""

    peer: int = 0
    zero: int = 0
    storage: int = 0


@dataclasses.dataclass(frozen=True)
class Progress:
    """One look at a migration.

    :ivar status: QEMU's MigrationStatus, e.g. active, completed
    :ivar rounds: passes over guest memory so far (dirty-sync-count)
    :ivar total_bytes: guest memory
    :ivar remaining_bytes: memory known to be missing at the destination
    :ivar transferred_bytes: bytes that went through the link
    :ivar mbps: megabits per second on the link, as QEMU measured last
    :ivar dirty_pages_per_s: pages the guest wrote to, per second
    :ivar throttle_percent: CPU time taken from the guest by auto-converge
    :ivar postcopy_requests: pages the destination had to ask for
    :ivar pages: pages by path
    :ivar downtime_ms: the guest's pause, once it is known
    :ivar expected_downtime_ms: what a switch-over now would cost
    :ivar eta_s: seconds until memory is over, None if that cannot be said
    :ivar dedup: None on a QEMU without dedup
    :ivar error: why QEMU gave up
    """

    status: str = 'none'
    rounds: int = 0
    page_size: int = 4096
    total_bytes: int = 0
    remaining_bytes: int = 0
    transferred_bytes: int = 0
    mbps: float = 0.0
    dirty_pages_per_s: int = 0
    throttle_percent: int = 0
    postcopy_requests: int = 0
    pages: PagePaths = PagePaths()
    downtime_ms: int | None = None
    expected_downtime_ms: int | None = None
    setup_time_ms: int | None = None
    total_time_ms: int | None = None
    eta_s: float | None = None
    dedup: statistics.DedupStatistics | None = None
    error: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the status will not change any more."""
        return self.status in FINAL

    @classmethod
    def from_qmp(cls, migrate: object,
                 dedup: statistics.DedupStatistics | None = None
                 ) -> 'Progress':
        """Decode query-migrate.

        :param migrate: the reply
        :param dedup: DedupStatistics of the same guest or None
        """
        reply = decode.mapping(migrate, 'query-migrate')
        ram = decode.mapping(reply.get('ram', {}), 'ram')

        def from_ram(name: str) -> int:
            return decode.count(ram.get(name, 0), 'ram.' + name)

        def optional(name: str) -> int | None:
            return (decode.count(reply[name], name)
                    if name in reply else None)

        return cls(
            status=decode.text(reply.get('status', 'none'), 'status'),
            rounds=from_ram('dirty-sync-count'),
            page_size=from_ram('page-size') or 4096,
            total_bytes=from_ram('total'),
            remaining_bytes=from_ram('remaining'),
            transferred_bytes=from_ram('transferred'),
            mbps=decode.number(ram.get('mbps', 0), 'ram.mbps'),
            dirty_pages_per_s=from_ram('dirty-pages-rate'),
            throttle_percent=optional('cpu-throttle-percentage') or 0,
            postcopy_requests=from_ram('postcopy-requests'),
            pages=_paths(from_ram('normal'), from_ram('duplicate'), dedup),
            downtime_ms=optional('downtime'),
            expected_downtime_ms=optional('expected-downtime'),
            setup_time_ms=optional('setup-time'),
            total_time_ms=optional('total-time'),
            dedup=dedup,
            error=(decode.text(reply['error-desc'], 'error-desc')
                   if 'error-desc' in reply else None))


def _paths(normal: int, zero: int,
           dedup: statistics.DedupStatistics | None) -> PagePaths:
    storage = (dedup.source.storage_pages
               if dedup is not None and dedup.source is not None else 0)
    return PagePaths(peer=normal, zero=zero, storage=storage)


class Eta:
    """Time to go, from how fast the missing memory gets less.

    Bytes on the link are no measure: a page read from storage costs the
    link nothing.  So the decline of remaining_bytes over the last
    seconds is taken.  It rises again with every round, so while a guest
    writes faster than memory is moved there is no answer.
    """

    def __init__(self, window_s: float = 5.0) -> None:
        self._window = window_s
        self._samples: collections.deque[tuple[float, int]] = (
            collections.deque())

    def update(self, now: float, remaining: int) -> float | None:
        """Add a sample, return seconds to go or None.

        :param now: monotonic clock in seconds
        :param remaining: bytes
        """
        if self._samples and now <= self._samples[-1][0]:
            return None
        self._samples.append((now, remaining))
        # keep one sample older than the window to span all of it
        while (len(self._samples) > 2
               and now - self._samples[1][0] >= self._window):
            self._samples.popleft()
        if remaining == 0:
            return 0.0
        then, before = self._samples[0]
        if now <= then or remaining >= before:
            return None
        return remaining * (now - then) / (before - remaining)
