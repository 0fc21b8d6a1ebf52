# SPDX-License-Identifier: Apache-2.0
"""Migrations to this host: who announced them, and how they ended.

::

    facts()                 QEMU's event, or libvirt's that it has ended
      |                       |
      announced ------------> over

A migration of stock QEMUs has no event of its own; whether it is still
under way is read from libvirt.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import logging
import threading
import time
from typing import Any

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.rpc import objects

LOG = logging.getLogger(__name__)

EVENT = 'X_DEDUP_INCOMING_DONE'
#: Instances remembered; those that were heard of last.
MAX_INSTANCES = objects.MAX_MIGRATIONS
#: Seconds from the announcement until libvirt has started a QEMU, at
#: most: the guest lists its page cache in between.
STARTING = 60.0


@dataclasses.dataclass
class _Arrival:
    migration_uuid: str | None
    announced: float
    figures: statistics.IncomingStatistics | None = None
    ended: bool = False
    over: bool = False


class IncomingMigrations:
    """The last migration of each instance to this host."""

    def __init__(self) -> None:
        self._arrivals: collections.OrderedDict[str, _Arrival] = (
            collections.OrderedDict())
        self._changed = threading.Condition()
        self._closed = False

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def announce(self, instance_uuid: str, migration_uuid: str) -> None:
        """Forget earlier migrations of an instance: a new one begins."""
        with self._changed:
            self._put(instance_uuid,
                      _Arrival(migration_uuid, time.monotonic()))

    def announced(self, instance_uuid: str) -> str | None:
        """Return the UUID of the last migration that was announced."""
        with self._changed:
            arrival = self._arrivals.get(instance_uuid)
            return arrival.migration_uuid if arrival is not None else None

    def end(self, instance_uuid: str) -> None:
        """Note that nothing of an instance arrives any more."""
        with self._changed:
            arrival = self._arrivals.get(instance_uuid)
            if arrival is not None:
                arrival.over = True

    def under_way(self, state_of: Callable[[str], str],
                  but: str | None = None) -> int:
        """Return how many migrations to this host are under way.

        :param state_of: returns one of rpc.objects.GUEST_STATES for an
            instance; it may raise HypervisorError
        :param but: instance that is not counted
        """
        with self._changed:
            open_ones = [(uuid, arrival)
                         for uuid, arrival in self._arrivals.items()
                         if uuid != but and arrival.migration_uuid is not None
                         and arrival.figures is None
                         and not (arrival.ended or arrival.over)]
        count = 0
        answers = True
        for uuid, arrival in open_ones:
            starting = time.monotonic() - arrival.announced < STARTING
            try:
                state = state_of(uuid) if answers else None
            except errors.HypervisorError as error:
                # The others would wait as long.
                answers = False
                LOG.warning('libvirt does not return the state of instance '
                            '%s, whose migration to this host was '
                            'announced: %s', uuid, error)
            if not answers:
                count += starting
                continue
            if state == 'arriving' or (state == 'none' and starting):
                count += 1
            else:
                arrival.over = True
        return count

    def on_event(self, instance_uuid: str, event: str | None,
                 data: Mapping[str, Any] | None) -> None:
        """Take an event of a guest, as LibvirtHost.subscribe gives them."""
        if event not in (EVENT, None):
            return
        with self._changed:
            arrival = self._arrivals.get(instance_uuid)
            if event is None:
                if arrival is not None:
                    arrival.ended = True
                    self._changed.notify_all()
                return
            try:
                figures = statistics.IncomingStatistics.from_event(data)
            except errors.MalformedReply as error:
                LOG.warning('Instance %s: the event %s of its QEMU is not '
                            'used: %s', instance_uuid, EVENT, error)
                return
            if arrival is None:
                # the agent was not running when the migration began
                arrival = _Arrival(None, time.monotonic())
            arrival.figures = figures
            self._put(instance_uuid, arrival)
            self._changed.notify_all()

    def _put(self, instance_uuid: str, arrival: _Arrival) -> None:
        self._arrivals[instance_uuid] = arrival
        self._arrivals.move_to_end(instance_uuid)
        while len(self._arrivals) > MAX_INSTANCES:
            self._arrivals.popitem(last=False)

    def wait(self, instance_uuid: str, migration_uuid: str, seconds: float
             ) -> tuple[statistics.IncomingStatistics | None, str]:
        """Wait for the end of a migration, return its figures.

        :returns: IncomingStatistics or None, and why it is None
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                arrival = self._arrivals.get(instance_uuid)
                if (arrival is not None and arrival.migration_uuid
                        not in (None, migration_uuid)):
                    return None, ('a later migration of the instance has '
                                  'begun')
                if arrival is not None and arrival.figures is not None:
                    return arrival.figures, ''
                if arrival is not None and arrival.ended:
                    return None, ('the QEMU of the destination ended '
                                  'without its figures')
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    return None, ('the QEMU of the destination has not '
                                  'sent its figures')
                self._changed.wait(left)
