# SPDX-License-Identifier: Apache-2.0
"""Counts what really goes over the link between two QEMUs.

QEMU's own figure leaves things out (the return path for one), and what is
to be proven should not be measured by the one who claims it.  So the
connections of a migration go through here:

    source --connect--> migrate.sock (Relay) --connect--> migrate.real
"""

from pathlib import Path
import queue
import socket
import threading
import time

from testkit import direct

_CHUNK = 256 << 10
#: Smaller where the rate is limited, so that no chunk takes long.
_PACED_CHUNK = 32 << 10
#: Chunks that are under way each way, 64 MiB: TCP has a window, too.
_UNDER_WAY = 2048
#: Seconds of the rate that may be caught up with after a wait that was
#: too long, as a switch's buffer would do it.
_SLACK_S = 0.005


class Wire:
    """Lets so many bytes a second through, for all connections together.

    :param rate: bytes per second
    """

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._free = 0.0
        self._lock = threading.Lock()

    def reserve(self, now: float, count: int) -> float:
        """Seconds to wait before `count` bytes may be handed on."""
        with self._lock:
            self._free = max(self._free, now - _SLACK_S) + count / self._rate
            return max(self._free - now, 0.0)

    def take(self, count: int) -> None:
        wait = self.reserve(time.monotonic(), count)
        if wait:
            time.sleep(wait)


class _Far:
    """Hands bytes on to a socket some time after they came.

    :param reader: where they come from; shut down if the writer has gone
    :param seconds: that they are under way
    :param count: list, whose item index has the bytes handed on
    """

    def __init__(
        self, reader: socket.socket, writer: socket.socket, seconds: float,
        count: list[int], index: int
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._seconds = seconds
        self._count = count
        self._index = index
        self._held: queue.Queue[tuple[float, bytes]] = queue.Queue(_UNDER_WAY)
        self._broken = False
        self._thread = threading.Thread(target=self._hand_on, daemon=True)
        self._thread.start()

    def sendall(self, data: memoryview) -> None:
        """Take bytes; OSError if earlier ones could not be handed on."""
        if self._broken:
            raise OSError('the other end has gone')
        self._held.put((time.monotonic() + self._seconds, bytes(data)))

    def finish(self) -> None:
        """Wait until all of it was handed on."""
        self._held.put((0.0, b''))
        self._thread.join()

    def _hand_on(self) -> None:
        while True:
            due, data = self._held.get()
            if not data:
                return
            if self._broken:
                continue
            time.sleep(max(due - time.monotonic(), 0.0))
            try:
                self._writer.sendall(data)
                self._count[self._index] += len(data)
            except OSError:
                # Whoever waits for room in the queue must get it.
                self._broken = True
                _shut_down(self._reader)


class Relay:
    """Takes connections at `path` and hands them on to `target`.

    One accept thread keeps the order of connections, which QEMU's
    channels depend on; two threads a connection copy.

    :param path, target: of unix sockets, or (address, port) of TCP
    :param rate: bytes per second the link can carry from source to
        destination, None: as many as this machine can
    :param delay: seconds of a round trip, half of them each way
    :param wire: the link's, if several relays are one link
    :param back: the link is that from destination to source
    """

    def __init__(
        self, path: Path | tuple[str, int], target: Path | tuple[str, int],
        rate: int | None = None, delay: float = 0.0,
        wire: Wire | None = None, back: bool = False
    ) -> None:
        self._target = target
        self._wire = wire or (Wire(rate) if rate else None)
        self._back = int(back)
        self._delay = delay
        self._listener = _socket(path)
        self._listener.bind(_address(path))
        self._listener.listen(64)
        self._sockets: list[socket.socket] = []
        # One [forward, back] for each connection; each number has one
        # writer, so none needs a lock.
        self._counts: list[list[int]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def forward_bytes(self) -> int:
        """Bytes that went from source to destination."""
        return sum(count[0] for count in list(self._counts))

    @property
    def back_bytes(self) -> int:
        """Bytes that went from destination to source."""
        return sum(count[1] for count in list(self._counts))

    def close(self) -> None:
        for one in [self._listener, *self._sockets]:
            _shut_down(one)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                source, _ = self._listener.accept()
            except OSError:
                return
            destination = _socket(self._target)
            self._sockets += [source, destination]
            for one in (source, destination):
                if one.family == socket.AF_INET:
                    # A link holds nothing back.
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                destination.connect(_address(self._target))
            except OSError:
                source.close()
                destination.close()
                continue
            count = [0, 0]
            self._counts.append(count)
            for way in ((source, destination, 0), (destination, source, 1)):
                threading.Thread(
                    target=self._copy, args=(*way, count), daemon=True
                ).start()

    def _copy(
        self,
        reader: socket.socket,
        writer: socket.socket,
        index: int,
        count: list[int],
    ) -> None:
        wire = self._wire if index == self._back else None
        buffer = bytearray(_PACED_CHUNK if wire or self._delay else _CHUNK)
        view = memoryview(buffer)
        far = (
            _Far(reader, writer, self._delay / 2, count, index)
            if self._delay
            else None
        )
        try:
            while got := reader.recv_into(buffer):
                if wire is not None:
                    wire.take(got)
                if far is not None:
                    far.sendall(view[:got])
                else:
                    writer.sendall(view[:got])
                    count[index] += got
            if far is not None:
                far.finish()
            writer.shutdown(socket.SHUT_WR)
        except OSError:
            # One end has gone: let the other one know.
            for one in (reader, writer):
                _shut_down(one)
            if far is not None:
                far.finish()


def _socket(address: Path | tuple[str, int]) -> socket.socket:
    return socket.socket(socket.AF_INET if isinstance(address, tuple)
                         else socket.AF_UNIX)


def _address(address: Path | tuple[str, int]) -> tuple[str, int] | str:
    return address if isinstance(address, tuple) else str(address)


def _shut_down(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        # closed by its peer before
        pass


class RelayedGuest(direct.DirectGuest):
    """A destination whose incoming migration passes a Relay.

    :ivar relay: None until it listens for a migration
    :ivar wire: the link's, None: as many bytes as this machine can
    :ivar delay: seconds of a round trip of its link
    """

    relay: Relay | None = None
    wire: Wire | None = None
    delay = 0.0

    def qmp(self, command, /, **arguments):
        result = super().qmp(command, **arguments)
        if command == 'migrate-incoming':
            # QEMU listens now: move its socket aside, take its place.
            path = self.migration_socket
            real = path.with_suffix('.real')
            path.rename(real)
            self.relay = Relay(path, real, delay=self.delay, wire=self.wire)
        return result

    def destroy(self):
        super().destroy()
        if self.relay is not None:
            self.relay.close()
