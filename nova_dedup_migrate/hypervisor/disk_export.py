# SPDX-License-Identifier: Apache-2.0
"""Reading the disk of a running guest, as the guest sees it.

QEMU exports the disk's node read-only, by NBD, on a socket that is passed
to it.  So it needs no right to make or open a path, and the reader none to
open the image; what is read is what the guest would read, whatever is in
QEMU's caches.

QEMU has one NBD server.  If it serves something else, a backup or an
arriving guest's disk, there is no export.  A server that was left is stopped
first: by a process of ours that was killed, or because libvirtd was.  Of an
export that is brief, as its name says, the end is waited for.
"""

from collections.abc import Iterator
import contextlib
import itertools
import os
import pathlib
import re
import socket
import tempfile
import time
import typing

from nova_dedup_migrate.hypervisor import errors

if typing.TYPE_CHECKING:
    from nova_dedup_migrate.hypervisor import base
    from nova_dedup_migrate.hypervisor import qmp_guest

#: Name of the export, for NBD's clients.
NAME = 'disk'
_PURPOSE = 'dedup-disk-export'
#: Names the process that reads: its PID, and when it began.
_ID = re.compile(r'dedup-(disk|slice)-(\d+)-(\d+)-\d+')
#: Seconds to wait for a brief export to end, and between two looks.
PATIENCE = 5.0
_LOOK = 0.2
_numbers = itertools.count(1)
#: IDs of what this process exports now.
_mine: set[str] = set()
_CONNECTIONS = 4


@contextlib.contextmanager
def exported(guest: 'qmp_guest.QmpGuest', node_name: str,
             brief: bool = False) -> Iterator[str]:
    """Export a node while the block runs; give the path of the socket.

    Only our own user can connect.  Clients may ask for the contexts
    base:allocation and qemu:allocation-depth.

    :param node_name: of a DiskWatch
    :param brief: for less than PATIENCE: others wait for its end, and it
        waits for nobody
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
            _start_alone(guest, listener, brief)
        name = 'dedup-%s-%d-%d-%d' % (
            'slice' if brief else 'disk', os.getpid(),
            _began(os.getpid()) or 0, next(_numbers))
        _mine.add(name)
        stack.callback(_mine.discard, name)
        stack.callback(_stop, guest)
        guest.qmp('block-export-add', **{
            'type': 'nbd', 'id': name, 'node-name': node_name, 'name': NAME,
            'writable': False, 'allocation-depth': True})
        yield path


def _start_alone(guest: 'qmp_guest.QmpGuest', listener: socket.socket,
                 brief: bool) -> None:
    """Start the server when no brief export is there any more.

    :raises QmpError: somebody else has a server
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return _start(guest, listener)
        except errors.QmpError:
            if _is_left(guest):
                _stop(guest)
                return _start(guest, listener)
            if (brief or time.monotonic() >= end
                    or not _is_brief(guest)):
                raise
        time.sleep(_LOOK)


def _start(guest: 'qmp_guest.QmpGuest', listener: socket.socket) -> None:
    """:raises QmpError: there is a server"""
    name = guest.pass_fd(listener.fileno(), _PURPOSE)
    try:
        guest.qmp('nbd-server-start', **{
            'addr': {'type': 'fd', 'data': {'str': name}},
            'max-connections': _CONNECTIONS})
    except errors.QmpError:
        guest.close_fd(name)
        raise


def stop_left(guest: 'base.Guest') -> None:
    """Stop a server of ours that nobody reads from any more.

    :raises HypervisorError: QEMU does not answer
    """
    if _is_left(guest):
        _stop(guest)


def _is_brief(guest: 'base.Guest') -> bool:
    """Return whether nothing but a brief export is there, or none yet."""
    found = guest.qmp('query-block-exports')
    return isinstance(found, list) and all(
        (match := _match(one)) is not None and match[1] == 'slice'
        for one in found)


def _match(export: object) -> re.Match[str] | None:
    """Match the name of an entry of query-block-exports."""
    name = export.get('id') if isinstance(export, dict) else None
    return _ID.fullmatch(name) if isinstance(name, str) else None


def _is_left(guest: 'base.Guest') -> bool:
    """Return whether all that is exported is for readers that are gone."""
    found = guest.qmp('query-block-exports')
    if not isinstance(found, list) or not found:
        return False
    for one in found:
        match = _match(one)
        if match is None or match[0] in _mine:
            return False
        if (int(match[2]) != os.getpid()
                and _began(int(match[2])) == int(match[3])):
            return False
    return True


def _began(pid: int) -> int | None:
    """Return when a process began, in ticks since boot; None: it is gone."""
    try:
        stat = pathlib.Path('/proc/%d/stat' % pid).read_text()
    except OSError:
        return None
    return int(stat.rpartition(')')[2].split()[19])


def _stop(guest: 'base.Guest') -> None:
    """Stop the server, which removes its exports, whatever reads there."""
    with contextlib.suppress(errors.QmpDisconnected, errors.GuestNotRunning):
        guest.qmp('nbd-server-stop')
