# SPDX-License-Identifier: Apache-2.0
"""The serving end of the data channel; frames.py has the protocol."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading

from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage.channel import errors
from nova_dedup_migrate.storage.channel import frames
from nova_dedup_migrate.storage.channel import limiter
from nova_dedup_migrate.storage.channel import services
from nova_dedup_migrate.storage.channel import tickets
from nova_dedup_migrate.storage.channel import tls

LOG = logging.getLogger(__name__)

#: Seconds for the handshake and the ticket, and between two requests.
HELLO = 10.0
IDLE = 300.0
#: Connections at a time.
MAX_CONNECTIONS = 64


class Server:
    """Listens in a thread; each connection has one of its own.

    :param address: to listen on
    :param port: 0 for any
    :param certificates: of this host
    :param limit: what is sent is limited by it
    :raises NoCertificates:
    :raises OSError: it cannot listen
    """

    def __init__(self, address: str, port: int,
                 certificates: tls.Certificates,
                 limit: limiter.Limiter) -> None:
        self.tickets: tickets.Tickets[services.Service] = tickets.Tickets()
        self._context = certificates.context(server=True)
        self._limit = limit
        self._guard = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        family, _, _, _, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM)[0]
        self._listener = socket.create_server(
            (str(where[0]), port, *where[2:]), family=family,
            backlog=MAX_CONNECTIONS)
        #: where it listens
        self.address = address
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._listen, name='dedup-channel',
                         daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, peer = self._listener.accept()
            except OSError as error:
                if self._closed:
                    return
                LOG.warning('The data channel does not accept a '
                            'connection: %s', error)
                continue
            with self._guard:
                if self._closed or len(self._open) >= MAX_CONNECTIONS:
                    connection.close()
                    continue
                self._open.add(connection)
            threading.Thread(target=self._connected, name='dedup-channel',
                             args=(connection, peer), daemon=True).start()

    def _connected(self, connection: socket.socket, peer: tuple) -> None:
        try:
            connection.settimeout(HELLO)
            # The end of an answer would wait until what came before it is
            # acknowledged, which the other side delays by 40 ms.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._context.wrap_socket(connection, server_side=True
                                           ) as secure:
                with self._guard:
                    self._open.discard(connection)
                    self._open.add(secure)
                try:
                    self._serve(secure)
                finally:
                    with self._guard:
                        self._open.discard(secure)
        except (OSError, errors.ChannelError) as error:
            LOG.info('The data channel from %s ends: %s', peer[0], error)
        finally:
            with self._guard:
                self._open.discard(connection)
            connection.close()

    def _serve(self, secure: ssl.SSLSocket) -> None:
        hello = tls.receive(secure, len(frames.MAGIC) + frames.TICKET)
        try:
            if not hello.startswith(frames.MAGIC):
                raise errors.TicketRefused(host='the peer',
                                           reason='it speaks another '
                                           'version of the protocol')
            issued = self.tickets.take(hello[len(frames.MAGIC):],
                                       tls.names(secure))
        except errors.TicketRefused as error:
            self._fail(secure, error)
            raise
        secure.sendall(frames.frame(frames.OK, b''))
        secure.settimeout(IDLE)
        while True:
            kind, payload = frames.read(
                lambda length: tls.receive(secure, length),
                frames.REQUESTS)
            try:
                for answer in issued.service.answer(kind, payload):
                    data = frames.frame(frames.OK, answer)
                    self._limit(len(data))
                    secure.sendall(data)
            except errors.ChannelBroken:
                raise
            except storage_errors.StorageError as error:
                self._fail(secure, error)

    @staticmethod
    def _fail(secure: ssl.SSLSocket, error: Exception) -> None:
        secure.sendall(frames.frame(
            frames.FAILED, str(error).encode()[:frames.MAX_REASON]))

    def close(self) -> None:
        """End all connections."""
        with self._guard:
            self._closed = True
            connections = list(self._open)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
