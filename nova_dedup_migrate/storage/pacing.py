# SPDX-License-Identifier: Apache-2.0
"""Reads a guest's disk no faster than its own I/O bears.

The rate begins low.  After each sample of the guest's latency it grows by
a quarter while the guest's requests take no longer than they did before,
and is halved when they take LIMIT times as long.
"""

from __future__ import annotations

from collections.abc import Callable
import threading
import time

#: Latency of the guest's requests against before that is borne.
LIMIT = 1.2
#: Bytes a second at first, and at least.
FIRST = 32 << 20
LEAST = 4 << 20
#: Seconds between two samples.
INTERVAL = 0.5


class Pacer:
    """Waits before each read.

    :param latency: returns the mean seconds that the guest's requests
        took since it was called last, None if there were none
    :param limit: bytes a second at most
    :param aborted: ends a wait early
    :param clock: seconds
    """

    def __init__(self, latency: Callable[[], float | None],
                 limit: float = float('inf'),
                 aborted: threading.Event | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._latency = latency
        self._limit = limit
        self._aborted = aborted or threading.Event()
        self._clock = clock
        #: bytes a second that are read now
        self.rate = min(FIRST, limit)
        self._before = latency()
        self._sampled = self._due = clock()

    def __call__(self, length: int) -> None:
        """Wait until length bytes may be read."""
        now = self._clock()
        if now - self._sampled >= INTERVAL:
            self._sample()
            self._sampled = now
        if self._due > now:
            self._aborted.wait(self._due - now)
        # What was not used is not saved up.
        self._due = max(self._due, now) + length / self.rate

    def _sample(self) -> None:
        found = self._latency()
        if found is not None and self._before is None:
            # The first requests of the guest; they may be slowed already.
            self._before = found
        if (found is not None and self._before is not None
                and found > self._before * LIMIT):
            self.rate = max(min(LEAST, self._limit), self.rate / 2)
        else:
            self.rate = min(self._limit, self.rate * 1.25)
