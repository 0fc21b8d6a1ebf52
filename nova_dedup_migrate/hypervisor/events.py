# SPDX-License-Identifier: Apache-2.0
"""Events of a guest: kept, so that none is missed between two calls."""

import collections
from collections.abc import Callable
import dataclasses
import time

from nova_dedup_migrate import native
from nova_dedup_migrate.hypervisor import errors


@dataclasses.dataclass(frozen=True)
class Event:
    """One event; data is as QEMU sent it, and not to be trusted."""

    number: int
    name: str
    data: dict
    time: float


class EventLog:
    """All events since the guest was started, oldest first.

    A caller takes a mark() before it does something and waits for what
    follows after that mark: however late the wait, the event is there.
    Only the last size events are kept; a guest can make QEMU emit many.
    """

    def __init__(self, size: int = 10000) -> None:
        self._events: collections.deque[Event] = collections.deque(
            maxlen=size)
        # add() may be called from a native thread; wait() is not for
        # programs on eventlet.
        self._changed = native.threading().Condition()
        self._next = 0
        self._closed = False
        self._callbacks: list[Callable[[Event], object]] = []

    def mark(self) -> int:
        """Number the next event will have."""
        with self._changed:
            return self._next

    def since(self, mark: int = 0) -> list[Event]:
        """List the events from mark on."""
        with self._changed:
            return [e for e in self._events if e.number >= mark]

    def subscribe(self,
                  callback: Callable[[Event], object]) -> Callable[[], None]:
        """Call callback(event) for each event from now on.

        It runs in the thread that reads the monitor and must not call
        the guest.  Return a function that ends the subscription.
        """
        with self._changed:
            self._callbacks.append(callback)

        def end() -> None:
            with self._changed:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)
        return end

    def wait(self, name: str, since: int = 0, timeout: float = 60.0,
             match: Callable[[dict], object] | None = None) -> Event:
        """Return the first event of that name from mark since on.

        :param match: further condition, called with the event's data
        :raises WaitTimeout: also as soon as the guest is gone
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                for event in self._events:
                    if (event.number >= since and event.name == name
                            and (match is None or match(event.data))):
                        return event
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    raise errors.WaitTimeout(what='event ' + name,
                                             seconds=timeout)
                self._changed.wait(left)

    def add(self, name: str, data: dict) -> None:
        """Record an event; for the implementations."""
        with self._changed:
            event = Event(self._next, name, data, time.time())
            self._next += 1
            self._events.append(event)
            self._changed.notify_all()
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback(event)

    def close(self) -> None:
        """No event will follow; wake up who waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
