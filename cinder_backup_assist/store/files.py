# SPDX-License-Identifier: Apache-2.0
"""Files of the backup store, read through Cinder's own drivers.

The readers of Cinder's chunked drivers are of two kinds.  Those of file
systems are files.  Those of object stores return a whole object from
read(); its client has it as a stream, and here the reader is given a
client whose answers are that stream.  So nothing is in memory but what is
read at a time, whatever the size of an object.
"""

from __future__ import annotations

import copy
import io
from typing import Any
from typing import BinaryIO
from typing import cast

from cinder_backup_assist import errors

#: Bytes that Swift's client would read at a time: it then has a stream.
_SWIFT_STEP = 1 << 20
#: Bytes of an object of a store whose client has no streams.
MAX_WHOLE = 256 << 20


class StoreFile(io.RawIOBase):
    """A file whose errors are StoreFailed.

    :param name: of the object
    :param stream: what the driver's reader has
    """

    def __init__(self, name: str, stream: Any) -> None:
        super().__init__()
        self.name = name
        self._stream = stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return isinstance(self._stream, io.IOBase) and self._stream.seekable()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._guarded(self._stream.seek, offset, whence)

    def read(self, size: int = -1) -> bytes:
        """Return at most size bytes, b'' at the end.

        :raises StoreFailed:
        """
        data = self._guarded(self._stream.read, size)
        if not isinstance(data, bytes):
            raise self._failed('its reader returned %s' % type(data).__name__)
        return data

    def close(self) -> None:
        if not self.closed:
            super().close()
            close = getattr(self._stream, 'close', None)
            if close is not None:
                self._guarded(close)

    def _guarded(self, function: Any, *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            # Each store's client has errors of its own.
            raise self._failed(_words(error)) from error

    def _failed(self, reason: str) -> errors.StoreFailed:
        return errors.StoreFailed(name=self.name, reason=reason)


def open_file(driver: Any, container: str, name: str, extra: Any = None
              ) -> BinaryIO:
    """Open a file of the backup store for reading.

    :param driver: one of Cinder's chunked drivers
    :param extra: extra_metadata of the backup
    :raises StoreFailed:
    """
    try:
        reader = driver.get_object_reader(container, name,
                                          extra_metadata=extra)
        if not isinstance(reader, io.IOBase):
            reader = _stream(reader)
    except errors.StoreFailed:
        raise
    except Exception as error:
        raise errors.StoreFailed(name=name, reason=_words(error)) from error
    return cast(BinaryIO, StoreFile(name, reader))


def _stream(reader: Any) -> Any:
    """Return the stream of a reader of an object store."""
    kind = type(reader).__name__
    if kind == 'S3ObjectReader':
        reader.conn = _S3(reader.conn)
    elif kind == 'SwiftObjectReader':
        reader.conn = _Swift(reader.conn)
    else:
        size = _google_size(reader)
        if size > MAX_WHOLE:
            raise errors.StoreFailed(
                name=reader.object_name,
                reason='it has %d bytes, and those of this store are read '
                'whole, up to %d' % (size, MAX_WHOLE))
        return io.BytesIO(reader.read())
    return reader.read()


class _Body:
    """What S3's reader takes for a body: read() returns the stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self) -> Any:
        return self._stream


class _S3:
    """S3's client, for one reader."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def get_object(self, **arguments: Any) -> dict[str, Any]:
        answer = self._conn.get_object(**arguments)
        return {**answer, 'Body': _Body(answer['Body'])}


class _Swift:
    """Swift's client, for one reader.

    A connection of Swift's client has one answer: after another request
    its stream reads from that one's. So each object gets a connection.
    """

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def get_object(self, container: str, name: str, headers: Any = None
                   ) -> tuple[Any, Any]:
        conn = copy.copy(self._conn)
        conn.http_conn = None
        answer, body = conn.get_object(container, name, headers=headers,
                                       resp_chunk_size=_SWIFT_STEP)
        # What comes next needs no other token.
        self._conn.url, self._conn.token = conn.url, conn.token
        return answer, _SwiftBody(conn, body)


class _SwiftBody:
    """Reads what one request returned.

    The client's own read() makes more requests if the stream ends early,
    and waits without end for an object that has become shorter.
    """

    def __init__(self, conn: Any, body: Any) -> None:
        self._conn = conn
        self.read = body.resp.read

    def close(self) -> None:
        self._conn.close()


def _google_size(reader: Any) -> int:
    return int(reader.conn.objects().get(
        bucket=reader.bucket, object=reader.object_name).execute()['size'])


def _words(error: Exception) -> str:
    return '%s: %s' % (type(error).__name__,
                       (str(error).splitlines() or [''])[0][:400])
