# SPDX-License-Identifier: Apache-2.0
"""What a migration without duplicates should reach, and whether it did.

    time      total <= 1.05 * max(unique / link, duplicates / storage)
    bytes     on the link <= 1.02 * unique + 24 B a duplicate page
    downtime  <= stock's + 10 ms
    total     <= 1.03 * stock's total time

`unique` is what no storage holds when the guest has arrived, found by
looking at all of its memory; so for a guest that writes meanwhile, time
and bytes are compared with a bound that no migration can reach.  Where
storage is slower than the link, duplicates go through the link on purpose,
which the bound for bytes does not know.
"""

from collections.abc import Iterable
import dataclasses

PAGE = 4096

TIME = 1.05
UNIQUE = 1.02
RECORD_BYTES = 24
DOWNTIME_MS = 10
TOTAL = 1.03


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A figure and the largest it should be, in the same unit."""

    value: float
    limit: float

    @property
    def reached(self) -> bool:
        return self.value <= self.limit

    @property
    def excess(self) -> float:
        """How far beyond the limit as a fraction of it; < 0: within."""
        return self.value / self.limit - 1 if self.limit else 0.0


def tally(
    known: Iterable[tuple[str, str, dict]], names: Iterable[str]
) -> dict[str, tuple[int, int]]:
    """Return target -> (how often it is reached, how often it is known).

    :param known: of targets() of a summary
    """
    found: dict[str, list[bool]] = {name: [] for name in names}
    for _, name, outcome in known:
        found[name].append(outcome['reached'])
    return {name: (sum(each), len(each)) for name, each in found.items()}


def bound_s(
    unique_bytes: float,
    duplicate_bytes: float,
    link_bytes_per_s: float,
    storage_bytes_per_s: float,
) -> float:
    """The time that a migration takes in which link and storage work side
    by side and are never idle, in seconds.

    Storage that gives nothing leaves everything to the link.
    """
    if storage_bytes_per_s <= 0:
        return (unique_bytes + duplicate_bytes) / link_bytes_per_s
    return max(
        unique_bytes / link_bytes_per_s, duplicate_bytes / storage_bytes_per_s
    )


def time(total_s: float, bound: float) -> Outcome:
    return Outcome(total_s, TIME * bound)


def link_bytes(
    sent: float, unique_bytes: float, duplicate_pages: float
) -> Outcome:
    return Outcome(
        sent, UNIQUE * unique_bytes + RECORD_BYTES * duplicate_pages
    )


def downtime(dedup_ms: float, stock_ms: float) -> Outcome:
    return Outcome(dedup_ms, stock_ms + DOWNTIME_MS)


def total(ratio: float) -> Outcome:
    """:param ratio: total time as a multiple of stock's"""
    return Outcome(ratio, TOTAL)
