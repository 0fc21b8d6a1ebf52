# SPDX-License-Identifier: Apache-2.0
"""A raw image of the image store (Glance), read by ranges.

::

    GET ENDPOINT/v2/images/ID/file        206 Partial Content
    Range: bytes=32768-65535        ----> Content-Range: bytes 32768-65535/SIZE

An answer counts if it is that range and nothing else.  A server that
ignores the header would send all of the image, one that redirects might
send the token to somebody else, and one that compresses or sends without
end might take all memory.  So each of them is an error, and the block is
taken from another source.

http.client is used because it does nothing unasked: it follows no redirect,
decodes nothing, and neither proxies of the environment nor ~/.netrc change
what is sent and where.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import io
import queue
import socket
import ssl
import threading
import time
from typing import BinaryIO
from typing import cast
from urllib import parse

from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import layers

#: Name of such a source, in reports.
NAME = 'image_store'
#: Seconds without a byte, and seconds for one answer.
TIMEOUT = 10.0
ANSWER = 20.0
#: Bytes that are read at a time.
_PIECE = 1 << 18

#: What the operator can do about an answer that is not 206.
_HINTS = {
    200: 'it ignores ranges: check what is between this host and Glance',
    400: 'the store of the image may not support ranges',
    401: 'the token of the migration is not valid, or not any more',
    403: 'the user of the migration may not download the image',
    404: 'the image is gone, or hidden from the user of the migration',
}


@dataclasses.dataclass(frozen=True)
class Tls:
    """How the server of an https endpoint is checked.

    :ivar cafile: certificates of authorities, PEM; '': those of the host
    :ivar insecure: whether any certificate is accepted
    :ivar certfile: certificate of this client, PEM; '': none
    :ivar keyfile: its key; '': it is in certfile
    """

    cafile: str = ''
    insecure: bool = False
    certfile: str = ''
    keyfile: str = ''

    def context(self) -> ssl.SSLContext:
        """:raises OSError: a file cannot be read or used"""
        made = ssl.create_default_context(cafile=self.cafile or None)
        if self.insecure:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if self.certfile:
            made.load_cert_chain(self.certfile, self.keyfile or None)
        return made


class ImageLayer(layers.RangeLayer):
    """One image.

    Connections are kept for the next range, one for each thread that reads.

    :param endpoint: of Glance, without the version
    :param image: its ID
    :param size: bytes of the image
    :param token: of a user who may download it
    :param tls: for https
    :param timeout: seconds without a byte after which the server is given up
    :raises SourceFailed: the endpoint or the TLS files cannot be used
    """

    def __init__(self, endpoint: str, image: str, size: int, token: str,
                 tls: Tls, timeout: float = TIMEOUT) -> None:
        super().__init__(self._open, size)
        self._image = image
        self._whole = size
        self._token = token
        self._timeout = timeout
        self._idle: queue.LifoQueue[_Connection] = queue.LifoQueue()
        self._guard = threading.Lock()
        self._all: set[_Connection] = set()
        self._closed = False
        self._context: ssl.SSLContext | None = None
        try:
            url = parse.urlsplit(endpoint)
            self._host, self._port = url.hostname or '', url.port
            if url.scheme not in ('http', 'https') or not self._host or (
                    '@' in url.netloc or url.query or url.fragment):
                raise ValueError('it is no endpoint: %s' % endpoint)
            if url.scheme == 'https':
                self._context = tls.context()
        except (OSError, ValueError) as error:
            raise errors.SourceFailed(name=NAME, reason=error) from error
        self._path = '%s/v2/images/%s/file' % (url.path.rstrip('/'), image)

    def _open(self, offset: int, length: int) -> BinaryIO:
        """Return a file of a range.

        :raises OSError: the server does not return just that range
        """
        connection, answer = self._get(
            'bytes=%d-%d' % (offset, offset + length - 1))
        try:
            self._check(answer, 'bytes %d-%d/%d' % (
                offset, offset + length - 1, self._whole), length)
        except OSError:
            answer.close()
            self._drop(connection)
            raise
        return cast(BinaryIO, _Body(self, connection, answer))

    def _get(self, wanted: str
             ) -> tuple[_Connection, http.client.HTTPResponse]:
        """Send a request; a connection that the server has closed is left."""
        while True:
            if self._closed:
                raise self._failed('it is closed')
            try:
                connection, used = self._idle.get_nowait(), True
            except queue.Empty:
                connection, used = self._connect(), False
            try:
                return connection, connection.get(self._path, {
                    'Range': wanted, 'Accept-Encoding': 'identity',
                    'X-Auth-Token': self._token})
            except (OSError, http.client.HTTPException) as error:
                self._drop(connection)
                if not used or isinstance(error, TimeoutError):
                    raise self._failed(
                        'the image store does not answer: %s'
                        % (str(error) or type(error).__name__)) from error

    def _connect(self) -> _Connection:
        made = _Connection(self._host, self._port, self._context,
                           self._timeout)
        with self._guard:
            if not self._closed:
                self._all.add(made)
                return made
        raise self._failed('it is closed')

    def _drop(self, connection: _Connection) -> None:
        with self._guard:
            self._all.discard(connection)
        connection.end()

    def done(self, connection: _Connection, whole: bool) -> None:
        """Take a connection back.

        :param whole: whether the answer has been read to its end
        """
        if whole:
            self._idle.put(connection)
        else:
            self._drop(connection)

    def _check(self, answer: http.client.HTTPResponse, wanted: str,
               length: int) -> None:
        """:raises OSError: the answer is not the range"""
        if answer.status != http.client.PARTIAL_CONTENT:
            raise self._failed('the image store answers HTTP %d: %s' % (
                answer.status, _HINTS.get(
                    answer.status, 'see the log of Glance')))
        for name, expected in (('Content-Range', (wanted,)),
                               ('Content-Length', (str(length), None)),
                               ('Content-Encoding', ('identity', None))):
            value = answer.headers.get(name)
            if value not in expected:
                raise self._failed(
                    'the image store answers with %s %.80r instead of %s'
                    % (name, value, expected[0]))

    def _failed(self, reason: str) -> OSError:
        return OSError('image %s is not read: %s' % (self._image, reason))

    def close(self) -> None:
        """Close the connections, which ends calls that wait."""
        with self._guard:
            self._closed = True
            found, self._all = self._all, set()
        for connection in found:
            connection.end()


class _Connection:
    """One connection, used by one thread at a time."""

    def __init__(self, host: str, port: int | None,
                 context: ssl.SSLContext | None, timeout: float) -> None:
        self._http = (
            http.client.HTTPConnection(host, port, timeout)
            if context is None else http.client.HTTPSConnection(
                host, port, timeout=timeout, context=context))
        self._socket: socket.socket | None = None

    def get(self, path: str, headers: dict[str, str]
            ) -> http.client.HTTPResponse:
        self._http.request('GET', path, headers=headers)
        # http.client forgets it if the server is to close the connection.
        self._socket = self._http.sock
        return self._http.getresponse()

    def end(self) -> None:
        """Close it; whoever waits for it in another thread goes on."""
        for each in self._socket, self._http.sock:
            if each is not None:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        self._http.close()


class _Body(io.RawIOBase):
    """The bytes of an answer, as a file; what fails is an OSError."""

    def __init__(self, layer: ImageLayer, connection: _Connection,
                 answer: http.client.HTTPResponse) -> None:
        super().__init__()
        self._layer = layer
        self._connection = connection
        self._answer = answer
        self._end = time.monotonic() + ANSWER

    def read(self, size: int = -1) -> bytes:
        """Return some bytes, b'' at the end."""
        if time.monotonic() > self._end:
            raise TimeoutError('an answer took more than %g s' % ANSWER)
        try:
            return self._answer.read1(min(size, _PIECE))
        except http.client.HTTPException as error:
            raise OSError('the answer is malformed: %r' % error) from error

    def close(self) -> None:
        if not self.closed:
            whole = self._answer.length == 0 and not self._answer.will_close
            self._answer.close()
            self._layer.done(self._connection, whole)
        super().close()
