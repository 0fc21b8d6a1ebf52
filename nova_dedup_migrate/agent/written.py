# SPDX-License-Identifier: Apache-2.0
"""What a guest wrote to in windows of several lengths, over time (P5.2)."""

import collections
import dataclasses
import random
import threading
import time

from nova_dedup_migrate.hypervisor import digests
from nova_dedup_migrate.planner import working_set

#: Measurements of each length that are kept.
_KEPT = 8


@dataclasses.dataclass(frozen=True)
class _Found:
    at: float
    written: digests.Written


class History:
    """The last measurements of one guest.

    :ivar seed: for its digests
    """

    def __init__(self) -> None:
        self.seed = random.getrandbits(63)
        self._lock = threading.Lock()
        self._found: dict[int, collections.deque[_Found]] = {}

    def add(self, written: digests.Written) -> None:
        """Keep a measurement."""
        with self._lock:
            self._found.setdefault(
                written.window, collections.deque(maxlen=_KEPT)).append(
                    _Found(time.monotonic(), written))

    def windows(self) -> tuple[working_set.Window, ...]:
        """Return what is known of each length, the shortest first."""
        now = time.monotonic()
        with self._lock:
            return tuple(
                working_set.Window(found[-1].written.seconds,
                                   found[-1].written.bytes,
                                   max(one.written.bytes for one in found),
                                   now - found[-1].at)
                for _, found in sorted(self._found.items()))
