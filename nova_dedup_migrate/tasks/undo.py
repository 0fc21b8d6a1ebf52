# SPDX-License-Identifier: Apache-2.0
"""Undoing, on a guest that has stayed, what a migration has changed.

The undo log of the operation says what that is.  Whoever ends an operation
calls this: its flow, or recovery after a crash.
"""

from collections.abc import Callable

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.operations import operation as operations


def disarm(guest: hypervisor.Guest) -> None:
    """Take back QEMU's order to leave out pages."""
    guest.disarm_dedup()


def drop_map(guest: hypervisor.Guest) -> None:
    """Free the hints of a guest whose I/O is not recorded.

    If it is recorded, newer hints take the place of older ones.
    """
    known = guest.dedup_statistics()
    if known.index is not None and known.index.running:
        guest.cancel_index()
    if not known.tracking:
        guest.track_dedup(False)


def forget_disks(guest: hypervisor.Guest) -> None:
    """Have QEMU watch no disk for a mirror any more.

    The guest has stayed, so the target of whatever was built is removed.
    """
    for watch in guest.disk_watches():
        if watch.recorder is None:
            guest.drop_disk(watch.token)


_HANDLERS: dict[str, Callable[[hypervisor.Guest], None]] = {
    operations.UNDO_ARM: disarm,
    operations.UNDO_MAP: drop_map,
    operations.UNDO_DISKS: forget_disks,
}


def is_needed(operation: operations.Operation) -> bool:
    """Whether the undo log has something of the guest's QEMU."""
    return any(entry in _HANDLERS for entry in operation.durable.undo)


def undo(operation: operations.Operation, guest: hypervisor.Guest) -> None:
    """Undo what the log has of the guest's QEMU, the newest entry first.

    An entry whose handler fails stays, with a warning.  The log's entries
    that only Nova can undo stay as well.

    :param guest: on the source
    """
    for entry in reversed(list(operation.durable.undo)):
        handler = _HANDLERS.get(entry)
        if handler is None:
            continue
        try:
            handler(guest)
        except (errors.QmpDisconnected, errors.GuestNotRunning):
            # A QEMU that has ended keeps nothing.
            pass
        except Exception as error:
            operation.warn(entry, error)
            continue
        operation.undone(entry)
