# SPDX-License-Identifier: Apache-2.0
"""What the QEMUs of this host said at the end of incoming migrations."""

import collections
import dataclasses
import logging
import threading
import time

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics

LOG = logging.getLogger(__name__)

EVENT = 'X_DEDUP_INCOMING_DONE'
#: Instances remembered; those that were heard of last.
MAX_INSTANCES = 1024


@dataclasses.dataclass
class _Arrival:
    migration_uuid: str | None
    figures: statistics.IncomingStatistics | None = None
    ended: bool = False


class IncomingEvents:
    """The last migration of each instance to this host."""

    def __init__(self):
        self._arrivals = collections.OrderedDict()
        self._changed = threading.Condition()
        self._closed = False

    def close(self):
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def expect(self, instance_uuid, migration_uuid):
        """Forget earlier migrations of an instance: a new one begins."""
        with self._changed:
            self._put(instance_uuid, _Arrival(migration_uuid))

    def on_event(self, instance_uuid, event, data):
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
                LOG.warning('Instance %s: %s', instance_uuid, error)
                return
            if arrival is None:
                # the agent was not running when the migration began
                arrival = _Arrival(None)
            arrival.figures = figures
            self._put(instance_uuid, arrival)
            self._changed.notify_all()

    def _put(self, instance_uuid, arrival):
        self._arrivals[instance_uuid] = arrival
        self._arrivals.move_to_end(instance_uuid)
        while len(self._arrivals) > MAX_INSTANCES:
            self._arrivals.popitem(last=False)

    def wait(self, instance_uuid, migration_uuid, seconds):
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
