# SPDX-License-Identifier: Apache-2.0
"""Measuring something off and on, so that the rest cancels out."""

from collections.abc import Callable
import dataclasses
import time

from benchmarks import spread


@dataclasses.dataclass(frozen=True)
class Slice:
    """A while of work.

    :param seconds: by the clock
    :param cpu_s: processor time of the process that was measured
    :param amount: bytes, or 1 for something that was done once
    :param pages: 4 KiB pages of guest memory that were read to
    """

    seconds: float
    cpu_s: float
    amount: float
    pages: int = 0

    @property
    def rate(self) -> float:
        return self.amount / self.seconds

    @property
    def cost(self) -> float:
        """Processor seconds for each unit of amount."""
        return self.cpu_s / self.amount


@dataclasses.dataclass(frozen=True)
class Pair:
    off: Slice
    on: Slice

    @property
    def rate_ratio(self) -> float:
        """Rate with it as a multiple of the rate without."""
        return self.on.rate / self.off.rate

    @property
    def cost_ratio(self) -> float:
        return self.on.cost / self.off.cost

    @property
    def ns_per_page(self) -> float | None:
        """Processor time that is added to each page."""
        if not self.on.pages or not self.off.pages:
            return None
        return 1e9 * (
            self.on.cpu_s / self.on.pages - self.off.cpu_s / self.off.pages
        )


def processor_time(pid: int) -> float:
    """Seconds all threads of a process have run, those included that have
    ended (see clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | 2)


def alternate(
    switch: Callable[[bool], None],
    work: Callable[[], Slice],
    count: int,
) -> list[Pair]:
    """`count` pairs, in the order off on on off off on ...

    What gets slowly faster or slower helps each side as often.
    """
    pairs = []
    for number in range(count):
        found = {}
        for on in (False, True) if number % 2 == 0 else (True, False):
            switch(on)
            found[on] = work()
        pairs.append(Pair(found[False], found[True]))
    return pairs


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Median of pairs and a 95 % interval for it, None if too few."""

    median: float
    low: float | None
    high: float | None
    n: int


def estimate(values: list[float]) -> Estimate | None:
    found = spread.of(values)
    if found is None:
        return None
    low, high = spread.interval(values) or (None, None)
    return Estimate(found.median, low, high, found.n)
