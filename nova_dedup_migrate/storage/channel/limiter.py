# SPDX-License-Identifier: Apache-2.0
"""A rate that several connections share."""

from __future__ import annotations

from collections.abc import Callable
import threading
import time


class Limiter:
    """Makes callers wait.

    :param rate: bytes a second, 0: no limit
    :param clock: seconds
    :param sleep: waits for seconds
    """

    def __init__(self, rate: float,
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], object] = time.sleep) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._guard = threading.Lock()
        self._due = clock()

    def __call__(self, length: int) -> None:
        """Wait until length bytes may be sent."""
        if not self._rate:
            return
        with self._guard:
            now = self._clock()
            wait = self._due - now
            # What was not used is not saved up.
            self._due = max(self._due, now) + length / self._rate
        if wait > 0:
            self._sleep(wait)
