# SPDX-License-Identifier: Apache-2.0
"""The host's end of a virtio-serial port.

The guest's end belongs to the guest: what comes may be anything, any time,
or never.
"""

import abc
import os
import select
import socket
import time
import typing

from nova_dedup_migrate.hypervisor import errors

#: What there may be of a port of some name.
MISSING, CLOSED, OPEN = 'missing', 'closed', 'open'
#: Bytes taken from it at a time.
CHUNK = 1 << 18


class Channel(abc.ABC):
    """A connection; usable as a context manager, which closes it.

    :ivar name: of the port

    Deadlines are of time.monotonic().
    """

    name: str

    def __enter__(self) -> typing.Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @abc.abstractmethod
    def send(self, data: bytes, deadline: float) -> None:
        """Send all of data.

        :raises WaitTimeout: nobody takes it
        :raises ChannelUnavailable: it was closed
        """

    @abc.abstractmethod
    def receive(self, deadline: float) -> bytes:
        """Return what has come, at least a byte; b'' at the end.

        :raises WaitTimeout: nothing came
        :raises ChannelUnavailable: it broke
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close it; idempotent."""


class SocketChannel(Channel):
    """Over a unix socket that QEMU listens on.

    :param name: of the port
    :param path: of the socket
    :raises ChannelUnavailable:
    """

    def __init__(self, name: str, path: str | os.PathLike) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # QEMU takes one connection and lets a second one wait.
            self._socket.setblocking(False)
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise self._broken(error) from error

    def send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(deadline, select.POLLOUT, 'a reader')
            try:
                view = view[self._socket.send(view):]
            except BlockingIOError:
                # it was ready, and is no more
                continue
            except OSError as error:
                raise self._broken(error) from error

    def receive(self, deadline: float) -> bytes:
        while True:
            self._wait(deadline, select.POLLIN, 'data')
            try:
                return self._socket.recv(CHUNK)
            except BlockingIOError:
                # likewise
                continue
            except OSError as error:
                raise self._broken(error) from error

    def _wait(self, deadline: float, events: int, what: str) -> None:
        poll = select.poll()
        poll.register(self._socket, events)
        left = deadline - time.monotonic()
        if not poll.poll(max(0.0, left) * 1000):
            raise late(self.name, what)

    def _broken(self, error: OSError) -> errors.ChannelUnavailable:
        return errors.ChannelUnavailable(
            channel=self.name, reason=error.strerror or str(error))

    def close(self) -> None:
        self._socket.close()


def late(name: str, what: str) -> errors.Late:
    """Make the error of a deadline that has passed."""
    return errors.Late(what='%s on channel %s' % (what, name))
