# SPDX-License-Identifier: Apache-2.0
"""Peers that speak the wire protocol, and as wrongly as a test likes.

The stream is QEMU's (migration/savevm.c, ram.c), the elements and messages in
it are those of qemu/src/migration/dedup/wire.h.
"""

import contextlib
import fcntl
import itertools
import pathlib
import socket
import struct
import termios
import threading

MACHINE = 'pc-i440fx-10.0'
SETUP, EXTENTS, RECORDS, EPOCH, BATCH = 1, 2, 3, 4, 8
OK, DIGEST, IO = 0, 1, 2
MAX_PAYLOAD = 64 << 10
MAX_EXTENTS = 1024
MAX_ID = (1 << 30) - 1
_VERSION = 2
_FLAG_DEDUP = struct.pack('>Q', 0x100)
_PING_MAGIC = 0xded0b001
_RP_DEDUP, _HELLO, _ANSWERS = 32, 1, 2
_SECTION = 1
#: Of Linux; Python has no name for it.
_SO_SNDBUFFORCE = 32


# What a source sends


def opening(machine=MACHINE):
    """A stream up to the RAM section, without a return path."""
    name = machine.encode()
    return b'QEVM' + struct.pack('>IBI', 3, 7, len(name)) + name


def command(number, data=b''):
    return struct.pack('>BHH', 8, number, len(data)) + data


def ping():
    """What a source sends that has elements to send."""
    return command(2, struct.pack('>I', _PING_MAGIC))


def ram_section():
    """The beginning of the section that elements are in."""
    return struct.pack('>BIB3sII', 1, _SECTION, 3, b'ram', 0, 4)


def element(kind, payload, length=None):
    """An element; `length` is what it says of itself."""
    if length is None:
        length = len(payload)
    return _FLAG_DEDUP + struct.pack('>HI', kind, length) + payload


def setup(pages, disks, flags=0, version=_VERSION):
    """SETUP for the guest's memory, and shared disks by their paths."""
    parts = [struct.pack('>HH16sQI', version, flags, b'k' * 16, 0, 0),
             struct.pack('>HB6sQ', 1, 6, b'pc.ram', pages << 12),
             struct.pack('>H', len(disks))]
    for path in disks:
        parts += [struct.pack('>BH', 0, len(path)), path.encode()]
    return element(SETUP, b''.join(parts))


def epoch(number):
    return element(EPOCH, struct.pack('>I', number))


def extents(disk, extents, number=None):
    """EXTENTS of (start, length, host) in the file below the format."""
    number = len(extents) if number is None else number
    return element(EXTENTS, struct.pack('>HH', disk, number) + b''.join(
        struct.pack('>QQQHB', *extent, 0, 0) for extent in extents))


def varint(value):
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes([*data, value])


def zigzag(value):
    return varint(value << 1 if value >= 0 else ~value << 1 | 1)


def records(first, pages, sector=0, block=0, disk=0, page=0):
    """RECORDS: one run of so many pages, from page `page` on."""
    return element(RECORDS, struct.pack('>I', first) + varint(
        pages << 1 | 1) + varint(block) + varint(disk) + zigzag(page)
        + zigzag(sector) + b'd' * 16 * pages)


def records_flood(pages, runs=1, first=1):
    """Yield bursts of 512 RECORDS, over and over for the same pages.

    :param pages: in each
    :param runs: so many of them for different pages
    :param first: id
    """
    made = [records(1, pages, page=pages * run, sector=8 * pages * run)
            for run in range(runs)]
    turns = itertools.cycle(made)
    while first + pages * 512 < MAX_ID:
        parts = []
        for _ in range(512):
            run = next(turns)
            parts.append(run[:14] + struct.pack('>I', first) + run[18:])
            first += pages
        yield b''.join(parts)


class _Peer:
    """One end of a connection, `socket`."""

    socket: socket.socket

    def send(self, *parts):
        """Send all; False: the other side has had enough."""
        try:
            for part in parts:
                self.socket.sendall(part)
        except OSError:
            return False
        return True

    def unread(self):
        """Bytes that the other side has still to read."""
        data = fcntl.ioctl(self.socket, termios.TIOCOUTQ, bytes(4))
        return int.from_bytes(data, 'little')

    def _buffer(self):
        """Have much waiting to be read, so that reading never idles."""
        # more than others may, but a smaller one does as well
        with contextlib.suppress(PermissionError):
            self.socket.setsockopt(
                socket.SOL_SOCKET, _SO_SNDBUFFORCE, 64 << 20)


class FakeSource(_Peer):
    """A connection to a destination that waits for a migration.

    :param path: the destination's socket
    """

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self._buffer()
        self.socket.connect(str(path))

    def greet(self, machine=MACHINE):
        """Begin; return the HELLO that comes back."""
        self.send(opening(machine), command(1), ping(), ram_section())
        kind, length = struct.unpack('>HH', self._receive(4))
        message = self._receive(length)
        if kind != _RP_DEDUP or message[0] != _HELLO:
            raise AssertionError('no HELLO, but %d: %r' % (kind, message))
        return message

    def _receive(self, length):
        data = b''
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise AssertionError('the destination ended it')
            data += more
        return data

    def drain(self):
        """Read and forget what comes back, in a thread of its own."""
        def run():
            with contextlib.suppress(OSError):
                while self.socket.recv(1 << 16):
                    pass
        threading.Thread(target=run, daemon=True).start()

    def close(self):
        self.socket.close()


# What a destination sends


def message(payload, length=None):
    length = len(payload) if length is None else length
    return struct.pack('>HH', _RP_DEDUP, length) + payload


def hello(version=_VERSION, features=0):
    return message(struct.pack('>BHI', _HELLO, version, features))


def answers(*runs, backlog=0, rate=0):
    """ANSWERS of (first id, number, status)."""
    data, following = struct.pack('>BII', _ANSWERS, backlog, rate), 0
    for first, number, status in runs:
        data += zigzag(first - following) + varint(number << 2 | status)
        following = first + number
    return message(data)


class FakeDestination(_Peer):
    """Takes what a source sends, and answers as the test says.

    :param path: of the socket to listen on
    :ivar greeted: set once the source has been sent a HELLO
    :ivar received: bytes of the stream
    """

    def __init__(self, path, greeting=None):
        self.greeted = threading.Event()
        self.received = 0
        self._greeting = hello() if greeting is None else greeting
        self._listener = socket.socket(socket.AF_UNIX)
        pathlib.Path(path).unlink(missing_ok=True)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self.socket = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with contextlib.suppress(OSError):
            self.socket, _ = self._listener.accept()
            self._buffer()
            before = b''
            while data := self.socket.recv(1 << 16):
                self.received += len(data)
                if self.greeted.is_set():
                    continue
                before = (before + data)[-(64 << 10):]
                if ping() in before:
                    self.socket.sendall(self._greeting)
                    self.greeted.set()

    def close(self):
        for one in (self._listener, self.socket):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
        self._thread.join(10)
