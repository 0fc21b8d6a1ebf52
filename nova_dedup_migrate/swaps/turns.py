# SPDX-License-Identifier: Apache-2.0
"""Who has the disks of an instance: their reader, or somebody else.

The reader clears bits of a watch and writes what it has read; who fills a
volume from that needs the reader gone.  So does who needs the node or the
NBD server of QEMU that the reader uses: a live migration, a detachment.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import contextlib
import threading
import time


class Turns:
    """The turns of all instances; for one reader."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._others: collections.Counter[str] = collections.Counter()
        self._read: str | None = None

    @contextlib.contextmanager
    def reading(self, instance: str) -> Iterator[bool]:
        """Give whether the disks may be read in the block."""
        with self._changed:
            mine = not self._others[instance] and self._read is None
            if mine:
                self._read = instance
        try:
            yield mine
        finally:
            if mine:
                with self._changed:
                    self._read = None
                    self._changed.notify_all()

    def is_wanted(self, instance: str) -> bool:
        """Return whether somebody waits for the reader to end."""
        with self._changed:
            return self._others[instance] > 0

    @contextlib.contextmanager
    def unread(self, instance: str, timeout: float) -> Iterator[bool]:
        """Keep the reader away in the block, which begins when it is gone.

        :param timeout: seconds to wait for it
        :returns: whether it is
        """
        with self._changed:
            self._others[instance] += 1
        try:
            yield self._wait(instance, time.monotonic() + timeout)
        finally:
            with self._changed:
                self._others[instance] -= 1
                if not self._others[instance]:
                    del self._others[instance]

    def _wait(self, instance: str, end: float) -> bool:
        with self._changed:
            while self._read == instance:
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True
