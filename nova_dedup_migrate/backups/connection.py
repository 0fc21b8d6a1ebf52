# SPDX-License-Identifier: Apache-2.0
"""A data connection to cinder-backup-assist, which reads one backup.

frames has the format.  What comes is not trusted: sizes are checked
before anything is allocated, and blocks are for the caller to verify.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import http.client
import ssl
import tempfile
from typing import BinaryIO
from typing import TypeVar
import urllib.parse

from oslo_config import cfg
import zstandard

from nova_dedup_migrate.backups import errors
from nova_dedup_migrate.backups import frames
from nova_dedup_migrate.backups import objects

#: Seconds in which something has to arrive.
TIMEOUT = 60.0
_STEP = 1 << 20
_MAX_REASON = 1024
_Result = TypeVar('_Result')


def tls_context(conf: cfg.ConfigOpts) -> ssl.SSLContext:
    """Return the TLS context of this host.

    :param conf: with conf.dedup_migrate registered
    :raises BackupError: it is not configured, or a file cannot be used
    """
    options = conf.dedup_migrate
    for name in ('backup_certificate', 'backup_certificate_key',
                 'backup_ca_certificate'):
        if not options[name]:
            raise errors.BackupError(
                reason='[dedup_migrate] %s is not set' % name)
    try:
        context = ssl.create_default_context(
            cafile=options.backup_ca_certificate)
        context.load_cert_chain(options.backup_certificate,
                                options.backup_certificate_key)
    except (OSError, ssl.SSLError) as error:
        raise errors.BackupError(
            reason='the certificates of [dedup_migrate] backup_certificate '
            'cannot be used: %s' % error) from error
    return context


class Connection:
    """Reads one backup; not for several threads at a time.

    :param host: of the daemon, for messages
    :ivar size: bytes of the volume, after manifest()
    :ivar unit: bytes of a unit, after manifest()
    """

    def __init__(self, host: str, ticket: objects.DedupBackupTicket,
                 context: ssl.SSLContext) -> None:
        self.host = host
        self.size = 0
        self.unit = 0
        self._headers = {'Authorization': 'Ticket ' + ticket.ticket,
                         'Accept-Encoding': frames.ENCODING}
        address = urllib.parse.urlsplit(ticket.url)
        self._http = http.client.HTTPSConnection(
            address.hostname or '', address.port, timeout=TIMEOUT,
            context=context)

    def close(self) -> None:
        self._http.close()

    def manifest(self) -> BinaryIO:
        """Return a file with the SHA-256 of each unit of the volume.

        :raises BackupError:
        """
        return self._guarded(self._manifest)

    def stream(self, extents: Sequence[tuple[int, int]]
               ) -> Iterator[frames.Frame]:
        """Yield frames with what the volume had, in the store's order.

        Zeros are left out.

        :param extents: (offset, length) in bytes, ascending; whole units
        :raises BackupError: the rest does not come
        """
        for start in range(0, len(extents), frames.MAX_EXTENTS):
            some = extents[start:start + frames.MAX_EXTENTS]
            answer = self._guarded(functools.partial(
                self._request, 'POST', '/v1/stream',
                frames.pack_extents(some)))
            read = self._guarded(functools.partial(_reader, answer))
            parsed = frames.parse(read, self.size, self.unit)
            while True:
                frame = self._guarded(functools.partial(next, parsed, None))
                if frame is None:
                    break
                yield frame
            # The connection is free for the next request.
            self._guarded(functools.partial(_end, answer))

    def _manifest(self) -> BinaryIO:
        answer = self._request('GET', '/v1/manifest')
        size = _count(answer.getheader('X-Volume-Size'))
        unit = _count(answer.getheader('X-Unit-Size'))
        frames.check_geometry(size, unit)
        expected = -(-size // unit) * frames.DIGEST
        file = tempfile.TemporaryFile()
        try:
            left = expected
            while left:
                data = answer.read(min(left, _STEP))
                if not data:
                    raise frames.Malformed(
                        'the manifest ends %d bytes before its end' % left)
                file.write(data)
                left -= len(data)
            if answer.read(1):
                raise frames.Malformed('the manifest is longer than %d bytes'
                                       % expected)
            file.flush()
        except BaseException:
            file.close()
            raise
        self.size, self.unit = size, unit
        return file

    def _request(self, method: str, path: str, body: bytes | None = None
                 ) -> http.client.HTTPResponse:
        self._http.request(method, path, body, self._headers)
        answer = self._http.getresponse()
        if answer.status != 200:
            words = answer.read(_MAX_REASON).decode('utf-8', 'replace')
            raise errors.AssistRefused(
                host=self.host, reason=''.join(
                    letter if letter.isprintable() else ' '
                    for letter in words).strip())
        return answer

    def _guarded(self, function: Callable[[], _Result]) -> _Result:
        try:
            return function()
        except (frames.Malformed, zstandard.ZstdError) as error:
            self.close()
            raise errors.StreamMalformed(host=self.host, reason=error
                                         ) from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise errors.AssistUnavailable(
                host=self.host, reason='the connection failed: %s'
                % (str(error) or type(error).__name__)) from error
        except BaseException:
            self.close()
            raise


def _reader(answer: http.client.HTTPResponse) -> Callable[[int], bytes]:
    """Return what reads the body of a stream.

    :raises Malformed: it is encoded in a way that was not requested
    """
    encoding = answer.getheader('Content-Encoding')
    if encoding is None:
        return answer.read
    if encoding != frames.ENCODING:
        raise frames.Malformed('its encoding is %.40r' % encoding)
    return zstandard.ZstdDecompressor(
        max_window_size=frames.MAX_WINDOW).stream_reader(answer).read


def _end(answer: http.client.HTTPResponse) -> None:
    """Read what is left after the last frame: the end of the encoding."""
    if len(answer.read(_STEP)) == _STEP:
        raise frames.Malformed('it goes on after its end')


def _count(text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit() or len(
            text) > 18:
        raise frames.Malformed('a size is %.40r' % text)
    return int(text)
