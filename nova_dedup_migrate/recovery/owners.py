# SPDX-License-Identifier: Apache-2.0
"""Who has the migration of an instance in hand: one map.

An instance is worked on by one thread at a time: the one that runs its
live migration, or the one that settles what is left of it.  Nova's own
queue of live migrations counts as an owner, too.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import threading

#: Owners.
SESSION = 'live migration'
RECOVERY = 'recovery'
NOVA = "Nova's queue"


class Owners:
    """The map.

    :param queued: callable(instance UUID) -> whether Nova's queue has it
    """

    def __init__(self, queued: Callable[[str], bool]) -> None:
        self._queued = queued
        self._owners: dict[str, str] = {}
        self._released = threading.Condition()

    def owner(self, uuid: str, mine: str = '') -> str:
        """Return the owner of an instance's migration, '' if none.

        :param mine: as whom the caller has claimed it, which does not count
        """
        with self._released:
            found = self._owners.get(uuid, '')
        if found and found != mine:
            return found
        return NOVA if self._queued(uuid) else ''

    @contextlib.contextmanager
    def claim(self, uuid: str, owner: str,
              wait: float = 0.0) -> Iterator[bool]:
        """Own it in the block, if it has no owner; yields whether.

        :param wait: seconds to wait for another owner's end
        """
        with self._released:
            mine = self._released.wait_for(
                lambda: uuid not in self._owners, wait)
            if mine:
                self._owners[uuid] = owner
        try:
            yield mine
        finally:
            if mine:
                with self._released:
                    del self._owners[uuid]
                    self._released.notify_all()
