# SPDX-License-Identifier: Apache-2.0
"""Reads a guest's disk no faster than its own I/O bears.

Before the first read the guest is measured for one INTERVAL.  The rate
begins low, and grows by a quarter with each interval in which the guest's
requests take no longer than LIMIT times what they took while nothing was
read.  If they do, reading stops for one interval, to find out what they
take without it: if that is as long, the guest has changed, or its requests
differ by as much at any time; if not, the rate is halved.

Requests differ by more than LIMIT from one another, and many a guest has
few in an interval.  So earlier intervals count, too, by and by less, and
the fewer requests there are, the longer they have to take: by CHANCE
standard errors, as if their times were exponentially distributed.  Without
that, chance alone halves the rate again and again.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import math
import threading
import time

#: Latency of the guest's requests against that without reading.
LIMIT = 1.2
#: Standard errors beyond that which chance may explain.
CHANCE = 2.0
#: Bytes a second at first, and at least.
FIRST = 32 << 20
LEAST = 4 << 20
#: Seconds between two samples.
INTERVAL = 0.5
#: Weight of what was measured before, when another interval is added: at the
#: present rate, and without reading.
_READING, _QUIET = 0.7, 0.9


@dataclasses.dataclass
class _Requests:
    """Requests of several intervals.

    :ivar count: number, weighted
    :ivar seconds: that all of them took
    """

    count: float = 0.0
    seconds: float = 0.0

    def add(self, found: _Requests, weight: float) -> None:
        self.count = self.count * weight + found.count
        self.seconds = self.seconds * weight + found.seconds

    def longer_than(self, quiet: _Requests) -> bool:
        """Return whether these were slowed, as far as is known."""
        if not self.count or not quiet.count:
            return bool(self.count)
        limit = LIMIT + CHANCE * math.sqrt(1 / self.count + 1 / quiet.count)
        return self.seconds / self.count > limit * quiet.seconds / quiet.count


class Pacer:
    """Waits before each read.

    :param requests: returns the number of the guest's requests that ended
        since it was called last, and the seconds that all of them took
    :param limit: bytes a second at most
    :param aborted: ends a wait early
    :param clock: seconds
    """

    def __init__(self, requests: Callable[[], tuple[int, float]],
                 limit: float = float('inf'),
                 aborted: threading.Event | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._requests = requests
        self._limit = limit
        self._aborted = aborted or threading.Event()
        self._clock = clock
        #: bytes a second that are read now
        self.rate = min(FIRST, limit)
        self._quiet, self._reading = _Requests(), _Requests()
        self._sampled = self._due = 0.0
        self._begun = False

    def __call__(self, length: int) -> None:
        """Wait until length bytes may be read."""
        if not self._begun:
            self._begun = True
            self._pause()
        now = self._clock()
        if now - self._sampled >= INTERVAL:
            self._sample()
            now = self._clock()
        if self._due > now:
            self._aborted.wait(self._due - now)
        # What was not used is not saved up.
        self._due = max(self._due, now) + length / self.rate

    def _pause(self) -> _Requests:
        """Return what requests take while nothing is read."""
        self._requests()
        self._aborted.wait(INTERVAL)
        found = _Requests(*self._requests())
        self._quiet.add(found, _QUIET)
        self._sampled = self._due = self._clock()
        return found

    def _sample(self) -> None:
        reading = self._reading
        reading.add(_Requests(*self._requests()), _READING)
        self._sampled = self._clock()
        if reading.longer_than(self._quiet):
            now = self._pause()
            if self._quiet.count:
                if (reading.longer_than(self._quiet)
                        and reading.longer_than(now)):
                    self.rate = max(min(LEAST, self._limit), self.rate / 2)
                    self._reading = _Requests()
                return
            # So few that nothing can be said about them.
            self._reading = _Requests()
        self.rate = min(self._limit, self.rate * 1.25)
