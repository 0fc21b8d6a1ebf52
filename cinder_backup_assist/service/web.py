# SPDX-License-Identifier: Apache-2.0
"""The data port: HTTP/1.1 over TLS, with certificates on both sides.

nova_dedup_migrate.backups.frames has the format.  The parser of HTTP is
that of Python's http.server, which bounds lines and headers; a thread
serves one connection, and their number is bounded here.  A connection that
is too slow, or too old, is ended.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import http.server
import logging
import socket
import ssl
import threading
import time
from typing import Any

from oslo_config import cfg
import zstandard

from cinder_backup_assist import errors
from cinder_backup_assist import leases as assist_leases
from cinder_backup_assist.service import limits
from cinder_backup_assist.service import metrics as service_metrics
from cinder_backup_assist.service import session as service_session
from cinder_backup_assist.service import tickets as service_tickets
from cinder_backup_assist.store import drivers
from nova_dedup_migrate.backups import frames

LOG = logging.getLogger(__name__)

#: Seconds for TLS's handshake.
_HANDSHAKE = 10.0
#: Connections that wait to be accepted.
_BACKLOG = 64
#: Connections without a ticket that are served beside those with one.
_STRANGERS = 8
_SCHEME = 'Ticket '
#: Of zstd: the fastest of its ordinary levels.
_LEVEL = 1


def tls_context(options: Any) -> ssl.SSLContext:
    """Return the TLS context of [backup_assist].

    :raises ValueError: an option is not set, or its file cannot be used
    """
    for name in ('certificate', 'certificate_key', 'ca_certificate'):
        if not options[name]:
            raise ValueError('[backup_assist] %s is not set' % name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(options.certificate, options.certificate_key)
        context.load_verify_locations(options.ca_certificate)
    except (OSError, ssl.SSLError) as error:
        raise ValueError('the certificates of [backup_assist] cannot be '
                         'used: %s' % error) from error
    return context


class DataServer:
    """Serves the data port.

    :param conf: with [backup_assist]
    """

    def __init__(self, conf: cfg.ConfigOpts, store: drivers.BackupStore,
                 tickets: service_tickets.Tickets,
                 leases: assist_leases.Leases,
                 metrics: service_metrics.Metrics) -> None:
        self.options = conf.backup_assist
        self.store = store
        self.tickets = tickets
        self.leases = leases
        self.metrics = metrics
        self.rate = limits.RateLimit(self.options.bandwidth * 1e6)
        self._context = tls_context(self.options)
        self._slots = threading.BoundedSemaphore(
            self.options.connections + _STRANGERS)
        self._guard = threading.Lock()
        self._open: set[socket.socket] = set()
        self._stopped = False
        self._socket = socket.create_server(
            (self.options.listen_address, self.options.port),
            family=_family(self.options.listen_address), backlog=_BACKLOG)
        self.port = self._socket.getsockname()[1]

    def start(self) -> None:
        threading.Thread(target=self._accept, name='assist-accept',
                         daemon=True).start()

    def reload(self) -> None:
        """Read the certificates again, for the next connections.

        :raises ValueError: they cannot be used; the old ones stay
        """
        self._context = tls_context(self.options)

    def stop(self) -> None:
        """End all connections."""
        with self._guard:
            self._stopped = True
            connections = list(self._open)
        # A thread in accept() does not notice a close.
        _end(self._socket)
        self._socket.close()
        for connection in connections:
            _end(connection)

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._socket.accept()
            except OSError as error:
                if self._stopped:
                    return
                # Such as too many open files: others have to end first.
                LOG.warning('No connection could be accepted: %s', error)
                time.sleep(1)
                continue
            if not self._slots.acquire(blocking=False):
                LOG.warning('The connection of %s is closed: there are %d',
                            address[0], self.options.connections + _STRANGERS)
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection, address),
                             name='assist-data', daemon=True).start()

    def _serve(self, connection: socket.socket, address: tuple) -> None:
        # Shutting down the TLS socket from another thread is not safe.
        plain = connection.dup()
        with self._guard:
            self._open.add(plain)
            stopped = self._stopped
        self.metrics.add('connections')
        try:
            if stopped:
                return
            connection.settimeout(_HANDSHAKE)
            # An answer is several writes. Each would wait until the one
            # before is acknowledged, which the other side delays by 40 ms.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._context.wrap_socket(
                    connection, server_side=True) as secure:
                _Handler(secure, address, self, plain)
        except OSError as error:
            LOG.info('The connection of %s ended: %s', address[0], error)
        except Exception:
            LOG.exception('The connection of %s ended', address[0])
        finally:
            connection.close()
            with self._guard:
                self._open.discard(plain)
            plain.close()
            self.metrics.add('connections', -1)
            self._slots.release()


class _Handler(http.server.BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = 'HTTP/1.1'
    server_version = 'cinder-backup-assist'
    sys_version = ''
    server: DataServer  # type: ignore[assignment]

    def __init__(self, connection: ssl.SSLSocket, address: tuple,
                 server: DataServer, plain: socket.socket) -> None:
        self._plain = plain
        self._ticket: str | None = None
        self._session: service_session.Session | None = None
        self._held = contextlib.ExitStack()
        self._end = time.monotonic() + server.options.session_time
        connection.settimeout(server.options.idle_time)
        # It handles all requests.
        super().__init__(connection, address, server)  # type: ignore

    def finish(self) -> None:
        self._held.close()
        super().finish()

    def handle_one_request(self) -> None:
        if time.monotonic() > self._end:
            self.close_connection = True
            return
        super().handle_one_request()

    def do_GET(self) -> None:
        if self.path == '/metrics':
            self._answer(200, self.server.metrics.text())
        elif self.path == '/v1/manifest':
            self._guarded(self._manifest)
        else:
            self._answer(404, 'there is no such resource\n')

    def do_POST(self) -> None:
        if self.path == '/v1/stream':
            self._guarded(self._stream)
        else:
            self.close_connection = True
            self._answer(404, 'there is no such resource\n')

    def _manifest(self) -> None:
        blocks = self._opened().blocks
        self.send_response(200)
        self.send_header('Content-Type', 'application/octet-stream')
        self.send_header('Content-Length', str(blocks.units * frames.DIGEST))
        self.send_header('X-Volume-Size', str(blocks.length))
        self.send_header('X-Unit-Size', str(blocks.unit))
        self.end_headers()
        for digests in blocks.manifest():
            self._send(digests)

    def _stream(self) -> None:
        body = self._body()
        session = self._opened()
        try:
            extents = frames.parse_extents(body, session.blocks.length,
                                           session.blocks.unit)
        except frames.Malformed as error:
            raise errors.RequestRefused(reason=error) from error
        self.send_response(200)
        self.send_header('Content-Type', 'application/octet-stream')
        self.send_header('Transfer-Encoding', 'chunked')
        parts = session.frames(extents)
        if self.headers.get('Accept-Encoding') == frames.ENCODING:
            self.send_header('Content-Encoding', frames.ENCODING)
            parts = _compressed(parts)
        self.end_headers()
        for data in parts:
            self._send(b'%x\r\n%b\r\n' % (len(data), data))
            self.server.metrics.add('stream_bytes_total', len(data))
        self._send(b'0\r\n\r\n')

    def _body(self) -> bytes:
        length = self.headers.get('Content-Length', '')
        if (not length.isascii() or not length.isdigit() or len(length) > 9
                or int(length) > 16 * frames.MAX_EXTENTS
                or self.headers.get('Transfer-Encoding')):
            self.close_connection = True
            raise errors.RequestRefused(
                reason='Content-Length is missing or more than %d'
                % (16 * frames.MAX_EXTENTS))
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            self.close_connection = True
            raise errors.RequestRefused(reason='the body is incomplete')
        return body

    def _opened(self) -> service_session.Session:
        """Return the session of this connection, begin it if it is new.

        :raises AssistError:
        """
        if self._session is not None:
            return self._session
        if self._ticket is not None:
            raise errors.TicketRefused(reason='it is unknown, used or '
                                       'expired')
        authorization = self.headers.get('Authorization', '')
        if not authorization.startswith(_SCHEME):
            raise errors.TicketRefused(reason='there is none')
        ticket = authorization.removeprefix(_SCHEME)
        grant = self.server.tickets.take(
            ticket, _names(self.connection), lambda: _end(self._plain))
        self._ticket = ticket
        self._held.callback(self.server.tickets.release, ticket)
        self._held.enter_context(self.server.leases.hold(
            backup.id for backup in grant.chain))
        self.server.metrics.add('sessions_total')
        LOG.info('Host %s reads backup %s', grant.host, grant.backup_id)
        self._session = service_session.Session(
            self.server.store, grant.chain,
            self.server.options.work_directory, self.server.rate,
            self.server.metrics)
        self._held.callback(self._session.close)
        return self._session

    def _guarded(self, function: Any) -> None:
        """Answer with the errors of function."""
        try:
            function()
        except errors.TicketRefused as error:
            self.server.metrics.add('tickets_refused_total')
            LOG.warning('A ticket of %s is refused: %s',
                        self.client_address[0], error.reason)
            # Whoever guesses makes a new connection for each.
            self.close_connection = True
            self._answer(403, '%s\n' % error)
        except errors.RequestRefused as error:
            self._answer(400, '%s\n' % error)
        except errors.AssistError as error:
            self.server.metrics.add('sessions_failed_total')
            LOG.warning('A backup is not served: %s', error)
            self.close_connection = True
            self._answer(409, '%s\n' % error)

    def _answer(self, status: int, text: str) -> None:
        body = text.encode('utf-8', 'replace')
        self.send_response(status)
        self.send_header('Content-Type', 'text/plain; charset=utf-8')
        self.send_header('Content-Length', str(len(body)))
        if self.close_connection:
            self.send_header('Connection', 'close')
        self.end_headers()
        self._send(body)

    def _send(self, data: bytes) -> None:
        if time.monotonic() > self._end:
            raise TimeoutError('session_time is over')
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug('%s: ' + format, self.client_address[0], *args)


def _compressed(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a zstd stream; with each part all before it can be read."""
    stream = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    for part in parts:
        yield stream.compress(part) + stream.flush(
            zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    yield stream.flush()


def _names(connection: Any) -> list[str]:
    """Return the names in the certificate of the other side."""
    certificate = connection.getpeercert() or {}
    names = [value for kind, value in certificate.get('subjectAltName', ())
             if kind == 'DNS']
    names += [value for relative in certificate.get('subject', ())
              for key, value in relative if key == 'commonName']
    return names


def _family(address: str) -> socket.AddressFamily:
    return socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][0]


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It has ended already.
        return
