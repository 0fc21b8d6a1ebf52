# SPDX-License-Identifier: Apache-2.0
"""Reading the disk of a running guest, as the guest sees it.

QEMU exports the disk's node read-only, by NBD, on a socket that is passed
to it.  So it needs no right to make or open a path, and the reader none to
open the image; what is read is what the guest would read, whatever is in
QEMU's caches.

QEMU has one NBD server.  If it serves something else, a backup or an
arriving guest's disk, there is no export.
"""

from collections.abc import Iterator
import contextlib
import os
import socket
import tempfile
import typing

from nova_dedup_migrate.hypervisor import errors

if typing.TYPE_CHECKING:
    from nova_dedup_migrate.hypervisor import qmp_guest

#: Name of the export, for NBD's clients.
NAME = 'disk'
_ID = 'dedup-disk-export'
_CONNECTIONS = 4


@contextlib.contextmanager
def exported(guest: 'qmp_guest.QmpGuest', node_name: str) -> Iterator[str]:
    """Export a node while the block runs; give the path of the socket.

    Only our own user can connect.  Clients may ask for the contexts
    base:allocation and qemu:allocation-depth.

    :param node_name: of a DiskWatch
    :raises QmpError: QEMU's NBD server is in use
    :raises HypervisorError: QEMU does not answer
    """
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(
            tempfile.TemporaryDirectory(prefix='dedup-export-'))
        path = os.path.join(directory, 'nbd')
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(_CONNECTIONS)
            name = guest.pass_fd(listener.fileno(), _ID)
            try:
                guest.qmp('nbd-server-start', **{
                    'addr': {'type': 'fd', 'data': {'str': name}},
                    'max-connections': _CONNECTIONS})
            except errors.QmpError:
                guest.close_fd(name)
                raise
        stack.callback(_stop, guest)
        guest.qmp('block-export-add', **{
            'type': 'nbd', 'id': _ID, 'node-name': node_name, 'name': NAME,
            'writable': False, 'allocation-depth': True})
        yield path


def _stop(guest: 'qmp_guest.QmpGuest') -> None:
    """Stop the server, which removes its exports, whatever reads there."""
    with contextlib.suppress(errors.QmpDisconnected, errors.GuestNotRunning):
        guest.qmp('nbd-server-stop')
