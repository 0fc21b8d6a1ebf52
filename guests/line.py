# SPDX-License-Identifier: Apache-2.0
"""The host's end of the guest's serial line.

What was written may be lost, and what comes may begin anywhere: a line
outlives those who use it, and a migration replaces it.
"""

import abc
import os
import select
import socket
import termios
import time
import tty

from guests import errors

_CHUNK = 1 << 16


class Line(abc.ABC):
    """One end of a line; usable as a context manager, which closes it."""

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    @abc.abstractmethod
    def send(self, data):
        """Write all of data.

        :raises GuestFailed: nobody takes it
        """

    @abc.abstractmethod
    def receive(self, timeout):
        """Return what has come, b'' if nothing did within timeout seconds.

        :raises GuestFailed: the line has gone
        """

    @abc.abstractmethod
    def close(self):
        """Close it; idempotent."""


class SocketLine(Line):
    """A serial or virtio-serial port whose unix socket QEMU listens on.

    :param path: of the socket
    :raises GuestFailed: nobody listens there
    """

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise errors.GuestFailed('no guest at %s: %s' % (
                path, error.strerror)) from error

    def send(self, data):
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise _gone(error) from error

    def receive(self, timeout):
        if not select.select([self._socket], [], [], max(0, timeout))[0]:
            return b''
        try:
            data = self._socket.recv(_CHUNK)
        except OSError as error:
            raise _gone(error) from error
        if not data:
            raise errors.GuestFailed('QEMU has closed the line to the guest')
        return data

    def close(self):
        self._socket.close()


class TerminalLine(Line):
    """A serial port that is a pseudo-terminal, as libvirt makes them.

    QEMU notices within a second that somebody is there; what is written
    before that may be lost.

    :param path: of the terminal, which libvirt's domain XML names
    :raises GuestFailed: there is none
    """

    def __init__(self, path):
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            raise errors.GuestFailed('no terminal %s: %s' % (
                path, error.strerror)) from error
        tty.setraw(self._fd)
        termios.tcflush(self._fd, termios.TCIFLUSH)

    def send(self, data):
        try:
            os.write(self._fd, data)
        except BlockingIOError:
            # nobody reads at the other end; it is sent again
            return
        except OSError as error:
            raise _gone(error) from error

    def receive(self, timeout):
        if not select.select([self._fd], [], [], max(0, timeout))[0]:
            return b''
        try:
            return os.read(self._fd, _CHUNK)
        except OSError:
            # QEMU has not opened its end, or has gone: nothing tells which
            time.sleep(min(0.2, max(0, timeout)))
            return b''

    def close(self):
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _gone(error):
    return errors.GuestFailed('the line to the guest broke: %s' % (
        error.strerror or error))
