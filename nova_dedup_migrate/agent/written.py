# SPDX-License-Identifier: Apache-2.0
"""What a guest writes to in windows of several lengths, over time (P5.2)."""

import collections
import dataclasses
import threading
import time

from nova_dedup_migrate.planner import working_set

#: Measurements of each length that are kept.
_KEPT = 8


@dataclasses.dataclass(frozen=True)
class _Found:
    at: float
    bytes: float


class Written:
    """The last measurements of one guest."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[int, collections.deque[_Found]] = {}

    def add(self, seconds: int, rate: float) -> None:
        """Keep a measurement.

        :param seconds: length of the window
        :param rate: bytes/s written to, on average
        """
        with self._lock:
            self._found.setdefault(
                seconds, collections.deque(maxlen=_KEPT)).append(
                    _Found(time.monotonic(), rate * seconds))

    def windows(self) -> tuple[working_set.Window, ...]:
        """Return what is known of each length, the shortest first."""
        now = time.monotonic()
        with self._lock:
            return tuple(
                working_set.Window(float(seconds), found[-1].bytes,
                                   max(one.bytes for one in found),
                                   now - found[-1].at)
                for seconds, found in sorted(self._found.items()))
