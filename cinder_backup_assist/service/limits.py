# SPDX-License-Identifier: Apache-2.0
"""The rate at which this daemon sends, over all connections."""

from __future__ import annotations

from collections.abc import Callable
import threading
import time

#: Seconds of the rate that may be sent at once after a pause.
_BURST = 0.25


class RateLimit:
    """Connections take turns; each waits for what was sent before.

    :param rate: bytes a second, 0 for no limit
    """

    def __init__(self, rate: float,
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._guard = threading.Lock()
        self._due = clock()

    def wait(self, length: int) -> None:
        """Return when length bytes may be sent."""
        if not self._rate:
            return
        with self._guard:
            now = self._clock()
            self._due = max(self._due, now - _BURST)
            delay = self._due - now
            self._due += length / self._rate
        if delay > 0:
            self._sleep(delay)
