# SPDX-License-Identifier: Apache-2.0
"""How long a guest was stopped to change hosts, from the events of its source.

query-migrate tells it only once the migration has completed, and by then
libvirt has often ended the source's QEMU.  The events are out before::

    STOP ... MIGRATION: pre-switchover, device ... MIGRATION: completed
          |<------------------ downtime --------------------->|

It is QEMU's own figure but for the time events take to get here.
"""

from collections.abc import Iterable

from nova_dedup_migrate.hypervisor import events as hypervisor_events

#: When the guest is no longer the source's.
_GONE = ('completed', 'postcopy-active')


def of_events(events: Iterable[hypervisor_events.Event]) -> float | None:
    """Return seconds, None if the guest stayed or did not run.

    :param events: hypervisor.events.Events of one migration, in order
    """
    stopped = None
    for event in events:
        if event.name == 'STOP':
            stopped = event.time
        elif event.name == 'RESUME':
            # it went on here, as after a failure
            stopped = None
        elif (event.name == 'MIGRATION' and stopped is not None
              and event.data.get('status') in _GONE):
            return max(0.0, event.time - stopped)
    return None
