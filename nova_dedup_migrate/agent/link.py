# SPDX-License-Identifier: Apache-2.0
"""How fast the link from one host to another is.

The destination listens for one connection, for a few seconds::

    source                              destination
      |------ token (32 bytes) ----------->|
      |------ zeros, as fast as it goes -->|  counts, until its limit of
      |                                    |  time or bytes
      |<----- rate (8 bytes, big endian) --|  bytes per second, 0: none
      |                                    |  closes

The rate is that of the second half of the time: the first has the slow
start of TCP and the buffers on the way.  Slow start takes a dozen round trips,
so if the hosts are far apart both take more time than was offered, each by the
round trip that TCP has measured.  There is nothing in it to be
kept from anybody, so it is not encrypted; a connection that does not begin
with the token, which came over the message bus, is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import logging
import secrets
import socket
import struct
import threading
import time

from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.rpc import objects

LOG = logging.getLogger(__name__)

#: Limits of every measurement, whatever a request names.
MAX_SECONDS = 10.0
MAX_BYTES = 4 << 30
#: Seconds to connect, and to send the token; and for which a request
#: waits until another measurement has ended.
PATIENCE = 3.0
#: Strangers that are turned away before listening ends.
MAX_STRANGERS = 16
#: No link is faster, in bytes per second.
MAX_RATE = 1 << 50

#: Round trips for which is measured at least, within MAX_SECONDS: slow start
#: takes half of them on a link of 10 Gbit/s and 50 ms.
_ROUND_TRIPS = 24

_CHUNK = 256 << 10
_RATE = struct.Struct('>Q')
#: Unsent bytes the kernel of the source keeps.
_UNSENT = 256 << 10
#: Of struct tcp_info: tcpi_rtt, in microseconds.
_RTT_AT, _INFO_SIZE = 68, 104


class Receiver:
    """The destination's half.

    :param address: to listen on and to be reached at
    :param ports: range of ports; the last free one is taken
    :param host: name of this host
    :param is_busy: callable, whether a migration is under way here
    """

    def __init__(self, address: str, ports: Sequence[int],
                 host: str = '', is_busy: Callable[[], bool] | None = None
                 ) -> None:
        self._address = address
        self._ports = ports
        self._host = host
        self._is_busy = is_busy
        # Two at a time would each measure a part.
        self._busy = threading.Lock()

    def offer(self, request: objects.DedupLinkRequest
              ) -> objects.DedupLinkOffer:
        """Begin to listen.

        :param request: DedupLinkRequest
        :returns: DedupLinkOffer
        :raises ProbeRefused: another one is still under way, or no port
            is free
        :raises LinkInUse: a migration of or to this host is under way
        """
        seconds = min(request.seconds, MAX_SECONDS)
        limit = min(request.bytes, MAX_BYTES)
        if self._is_busy is not None and self._is_busy():
            raise errors.LinkInUse(host=self._host)
        if not self._busy.acquire(timeout=PATIENCE):
            raise errors.ProbeRefused(
                reason='another measurement is under way; try again later')
        try:
            listener = self._listen()
            token = secrets.token_bytes(32)
            threading.Thread(
                target=self._serve, name='dedup-link', daemon=True,
                args=(listener, token, seconds, limit)).start()
        except BaseException:
            self._busy.release()
            raise
        return objects.DedupLinkOffer(
            address=self._address, port=listener.getsockname()[1],
            token=token.hex(), seconds=seconds, bytes=limit)

    def _listen(self) -> socket.socket:
        try:
            family, _, _, _, address = socket.getaddrinfo(
                self._address, None, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise errors.ProbeRefused(
                reason='this host cannot listen on %s: %s. Check '
                '[dedup_migrate] probe_address'
                % (self._address, error)) from error
        problem = 'the range is empty'
        for port in reversed(self._ports):
            try:
                return socket.create_server(
                    (address[0], port, *address[2:]), family=family,
                    backlog=1)
            except OSError as error:
                problem = '%s, port %d: %s' % (self._address, port, error)
        raise errors.ProbeRefused(
            reason='no port from probe_port_min to probe_port_max is free: '
            + problem)

    def _serve(self, listener: socket.socket, token: bytes,
               seconds: float, limit: int) -> None:
        try:
            with listener, self._accept(listener, token) as connection:
                rate = _count(connection, _long_enough(connection, seconds),
                              limit)
                connection.settimeout(PATIENCE)
                connection.sendall(_RATE.pack(rate))
                _drain(connection)
        except OSError as error:
            LOG.info('The link to this host was not measured: %s', error)
        finally:
            self._busy.release()

    @staticmethod
    def _accept(listener: socket.socket, token: bytes) -> socket.socket:
        """Return the connection that begins with the token."""
        deadline = time.monotonic() + PATIENCE
        for _ in range(MAX_STRANGERS):
            listener.settimeout(max(0.001, deadline - time.monotonic()))
            connection, _ = listener.accept()
            try:
                said = _read(connection, len(token), deadline)
                if secrets.compare_digest(said, token):
                    return connection
            except OSError:
                # gone, or too slow; somebody else may come
                pass
            connection.close()
        raise ConnectionError('nobody sent the token')


def measure(offer: objects.DedupLinkOffer,
            request: objects.DedupLinkRequest, family: int,
            address: tuple) -> float | None:
    """Push bytes to a destination, return bytes per second or None.

    The source's half.

    :param offer: of the destination; whatever its limits are, those of
        the request hold, but for what the round trip needs
    :param family: of the address
    :param address: of the offer, as Peers.resolve has checked it
    :raises OSError: it cannot be reached or does not keep to the protocol
    """
    seconds = min(offer.seconds, request.seconds, MAX_SECONDS)
    limit = min(offer.bytes, request.bytes, MAX_BYTES)
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT,
                              _UNSENT)
        # What is on its way when the time is over is of no use.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                              struct.pack('ii', 1, 0))
        connection.sendall(bytes.fromhex(offer.token))
        deadline = time.monotonic() + _long_enough(connection, seconds)
        _push(connection, deadline, limit)
        with contextlib.suppress(OSError):
            # A destination with higher limits has no reason to wait.
            connection.shutdown(socket.SHUT_WR)
        answer = _read(connection, _RATE.size, deadline + PATIENCE)
    rate, = _RATE.unpack(answer)
    if rate > MAX_RATE:
        raise ConnectionError('a rate of %d is not possible' % rate)
    return float(rate) or None


def _long_enough(connection: socket.socket, seconds: float) -> float:
    """Return for how long to measure, at least so many seconds."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO,
                                 _INFO_SIZE)
    microseconds, = struct.unpack_from('=I', info, _RTT_AT)
    return min(max(seconds, _ROUND_TRIPS * microseconds / 1e6), MAX_SECONDS)


def _push(connection: socket.socket, deadline: float, limit: int) -> None:
    zeros = memoryview(bytes(_CHUNK))
    sent = 0
    while sent < limit:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        connection.settimeout(left)
        try:
            sent += connection.send(zeros[:limit - sent])
        except (TimeoutError, BrokenPipeError, ConnectionResetError):
            # The destination may be content already.
            return


def _read(connection: socket.socket, length: int, deadline: float) -> bytes:
    """Return exactly length bytes."""
    parts = b''
    while len(parts) < length:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        part = connection.recv(length - len(parts))
        if not part:
            raise ConnectionError('the connection was closed')
        parts += part
    return parts


def _drain(connection: socket.socket) -> None:
    """Wait until the source has closed.

    To close with bytes unread would take the answer back on its way.
    """
    connection.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + PATIENCE
    buffer = bytearray(_CHUNK)
    with contextlib.suppress(TimeoutError, ConnectionResetError):
        while connection.recv_into(buffer):
            connection.settimeout(max(0.001, deadline - time.monotonic()))


def _count(connection: socket.socket, seconds: float, limit: int) -> int:
    """Take bytes and return their rate in the second half of the time."""
    buffer = bytearray(_CHUNK)
    started = time.monotonic()
    seen = [(started, 0)]
    total = 0
    while total < limit:
        left = started + seconds - time.monotonic()
        if left <= 0:
            break
        connection.settimeout(left)
        try:
            count = connection.recv_into(buffer)
        except TimeoutError:
            break
        if not count:
            break
        total += count
        now = time.monotonic()
        if now - seen[-1][0] >= seconds / 1000:
            seen.append((now, total))
    end = time.monotonic()
    middle = started + (end - started) / 2
    begun, before = next(item for item in reversed(seen)
                         if item[0] <= middle)
    if total == before or end <= begun:
        return 0
    return min(MAX_RATE, int((total - before) / (end - begun)))
