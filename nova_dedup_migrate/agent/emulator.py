# SPDX-License-Identifier: Apache-2.0
"""What the QEMU of this host can do.

A QEMU without a machine is started and queried, as libvirt does it, once
for each version of the binary.  Only binaries the local libvirt offers
are started, whatever a request names.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import logging
import os
import pathlib
import socket
import tempfile
import threading
from typing import Any

from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.hypervisor import process
from nova_dedup_migrate.hypervisor import qmp

LOG = logging.getLogger(__name__)

#: The command that tells a patched QEMU.
COMMAND = 'x-dedup-arm'
#: Seconds for QEMU to start and answer.
TIMEOUT = 30.0
#: Binaries remembered.
MAX_KNOWN = 16


@dataclasses.dataclass(frozen=True)
class Emulator:
    """A QEMU: whether it takes part, its version, why it does not."""

    patched: bool
    version: str = ''
    reason: str = ''


class Emulators:
    """The QEMUs of this host.

    :param offered: function that returns the paths libvirt offers, its
        default first; it may raise HypervisorError
    """

    def __init__(self, offered: Callable[[], list[str]]) -> None:
        self._offered = offered
        self._known: dict[tuple, Emulator] = {}
        self._guard = threading.Lock()

    def describe(self, path: str | None = None) -> Emulator:
        """Return the Emulator of a path, None for libvirt's default."""
        try:
            offered = self._offered()
        except errors.HypervisorError as error:
            return Emulator(False, reason='libvirt does not answer: %s'
                            % error)
        if path is None and offered:
            path = offered[0]
        allowed = {os.path.realpath(each) for each in offered}
        if path is None or os.path.realpath(path) not in allowed:
            return Emulator(False, reason='libvirt of the destination does '
                            'not offer the emulator %s' % (path or 'QEMU'))
        return self._ask_once(os.path.realpath(path))

    def _ask_once(self, path: str) -> Emulator:
        try:
            status = os.stat(path)
        except OSError as error:
            return Emulator(False, reason=str(error))
        key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
        # held while QEMU starts, so that it is started once
        with self._guard:
            if key not in self._known:
                if len(self._known) >= MAX_KNOWN:
                    self._known.pop(next(iter(self._known)))
                try:
                    self._known[key] = ask(path)
                except (errors.HypervisorError, OSError) as error:
                    # It may be busy, or be written just now.
                    LOG.warning('%s was started and did not return what '
                                'it can do: %s. The next migration starts it '
                                'again.', path, error)
                    return Emulator(False, reason='%s of the destination '
                                    'did not answer: %s' % (path, error))
                LOG.info('%s: %s', path, self._known[key])
            return self._known[key]


def ask(path: str) -> Emulator:
    """Start a QEMU, query it and return an Emulator.

    :raises HypervisorError, OSError:
    """
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryDirectory(prefix='dedup-qemu-') as directory:
        with theirs:
            child = process.Process(
                [path, '-machine', 'none', '-S', '-nographic', '-nodefaults',
                 '-no-user-config',
                 '-chardev', 'socket,id=qmp,fd=%d' % theirs.fileno(),
                 '-mon', 'chardev=qmp,mode=control'],
                pathlib.Path(directory, 'log'), directory,
                pass_fds=(theirs.fileno(),))
        connection = qmp.QmpConnection(path, events.EventLog(16))
        try:
            connection.connect(ours, TIMEOUT)
            version = connection.execute('query-version', timeout=TIMEOUT)
            commands = connection.execute('query-commands', timeout=TIMEOUT)
        except errors.QmpDisconnected as error:
            child.wait(TIMEOUT)
            raise errors.GuestExited(name=path, status=child.status(),
                                     log=child.last_lines()) from error
        finally:
            child.kill()
            connection.close()
    return decode_answers(version, commands)


def decode_answers(version: Any, commands: Any) -> Emulator:
    """Make an Emulator of the replies of QMP.

    :raises MalformedReply:
    """
    numbers = decode.mapping(decode.mapping(version, 'query-version').get(
        'qemu'), 'query-version.qemu')
    text = '.'.join('%d' % decode.count(numbers.get(part), part)
                    for part in ('major', 'minor', 'micro'))
    if not isinstance(commands, list):
        raise errors.MalformedReply(field='query-commands', value=commands,
                                    expected='a list')
    if any(decode.mapping(command, 'query-commands').get('name') == COMMAND
           for command in commands):
        return Emulator(True, text)
    return Emulator(False, text, 'QEMU %s of the destination is a stock '
                    'QEMU without dedup support' % text)
