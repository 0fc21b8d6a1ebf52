# SPDX-License-Identifier: Apache-2.0
"""The rounds of a migration, from samples of its progress."""

from collections.abc import Callable
from collections.abc import Sequence

from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.reports import report

#: The rate of a smaller round depends on latency, not on the link.
_SAMPLE_BYTES = 8 * 1024 * 1024


def summarize(samples: Sequence[progress.Progress]
              ) -> tuple[report.Round, ...]:
    """Return a tuple of report.Round.

    :param samples: hypervisor Progress, the last one of each round,
        oldest first
    """
    rounds = []
    before: progress.Progress | None = None
    for sample in samples:
        rounds.append(_round(sample, before))
        before = sample
    return tuple(rounds)


def _round(sample: progress.Progress,
           before: progress.Progress | None) -> report.Round:
    source = sample.dedup.source if sample.dedup is not None else None

    def since(value: Callable[[progress.Progress], int]) -> int:
        # The counters restart with a new migration of the same QEMU.
        return max(0, value(sample) - (value(before) if before else 0))

    return report.Round(
        number=sample.rounds,
        seconds=since(lambda at: at.total_time_ms or 0) / 1000,
        pages=report.Paths(
            peer=since(lambda at: at.pages.peer),
            zero=since(lambda at: at.pages.zero),
            storage=since(lambda at: at.pages.storage)),
        transferred_bytes=since(lambda at: at.transferred_bytes),
        remaining_bytes=sample.remaining_bytes,
        link_rate=sample.mbps * 1e6 / 8,
        dirty_rate=float(sample.dirty_pages_per_s * sample.page_size),
        refused_pages=(source.nack_digest + source.nack_io
                       if source is not None else 0),
        resent_pages=source.resent_pages if source is not None else 0)


def link_rate(rounds: Sequence[report.Round]) -> float | None:
    """Return the rate of the link in bytes/s, None if not known.

    It is QEMU's figure for the round with the most bytes.
    """
    largest = max(rounds, key=lambda one: one.transferred_bytes,
                  default=None)
    if largest is None or largest.transferred_bytes < _SAMPLE_BYTES:
        return None
    return largest.link_rate or None
