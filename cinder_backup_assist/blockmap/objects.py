# SPDX-License-Identifier: Apache-2.0
"""Reads one object of a backup forwards, and no more than it may hold.

A compressed object is one stream: what lies in the middle is reached by
decompressing all before it.  So an object is read once and forwards, and
only as far as it is wanted.  Decompression stops at the length that the
metadata has, in steps of bounded size, however much more there may be.
"""

from __future__ import annotations

import bz2
from collections.abc import Callable
from typing import BinaryIO
from typing import Protocol
import zlib

import zstandard

from cinder_backup_assist import errors
from cinder_backup_assist.blockmap import chain

#: Bytes to read, and to decompress, at a time.
STEP = 1 << 20
#: Bytes of the window of zstd, which is allocated for what a frame says.
_WINDOW = 128 << 20


class _Decompressor(Protocol):
    """What zlib's and bz2's have in common once they are wrapped."""

    def more(self, data: bytes, limit: int) -> bytes: ...

    @property
    def ended(self) -> bool: ...

    @property
    def hungry(self) -> bool: ...


class _Zlib:
    def __init__(self) -> None:
        self._stream = zlib.decompressobj()

    def more(self, data: bytes, limit: int) -> bytes:
        return self._stream.decompress(
            self._stream.unconsumed_tail + data, limit)

    @property
    def ended(self) -> bool:
        return self._stream.eof

    @property
    def hungry(self) -> bool:
        return not self._stream.unconsumed_tail


class _Bz2:
    def __init__(self) -> None:
        self._stream = bz2.BZ2Decompressor()

    def more(self, data: bytes, limit: int) -> bytes:
        return self._stream.decompress(data, limit)

    @property
    def ended(self) -> bool:
        return self._stream.eof

    @property
    def hungry(self) -> bool:
        return self._stream.needs_input


class _Stepwise:
    """read(size) of what a decompressor makes of a file."""

    def __init__(self, file: BinaryIO, stream: _Decompressor) -> None:
        self._file = file
        self._stream = stream
        self._ended = False

    def read(self, size: int) -> bytes:
        while not self._stream.ended:
            data = b''
            if self._stream.hungry and not self._ended:
                data = self._file.read(STEP)
                self._ended = not data
            made = self._stream.more(data, size)
            if made:
                return made
            if self._ended and self._stream.hungry:
                break
        return b''


def _zstd(file: BinaryIO) -> _Readable:
    return zstandard.ZstdDecompressor(
        max_window_size=_WINDOW).stream_reader(file, read_size=STEP)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


_READERS: dict[str, Callable[[BinaryIO], _Readable]] = {
    'none': lambda file: file,
    'zlib': lambda file: _Stepwise(file, _Zlib()),
    'bz2': lambda file: _Stepwise(file, _Bz2()),
    'zstd': _zstd,
}
_BROKEN = (zlib.error, zstandard.ZstdError, EOFError, ValueError)


class ObjectReader:
    """Reads an object forwards.

    :param entry: of the object
    :param file: with its bytes, as the store has them
    :ivar position: of the next byte, in the volume
    """

    def __init__(self, entry: chain.ChainObject, file: BinaryIO) -> None:
        self._entry = entry
        self._file = file
        self._reader = _READERS[entry.compression](file)
        self._seekable = (entry.compression == 'none' and file.seekable())
        self.position = entry.offset

    def close(self) -> None:
        self._file.close()

    def can_reach(self, position: int) -> bool:
        """Return whether a byte of the volume is still to come."""
        return self._seekable or position >= self.position

    def skip_to(self, position: int) -> None:
        """Go on to a byte of the volume.

        :raises DamagedObject: there is less
        """
        if self._seekable:
            self._file.seek(position - self._entry.offset)
            self.position = position
        while self.position < position:
            self.read(min(STEP, position - self.position))

    def read(self, size: int) -> bytes:
        """Return the next size bytes.

        :raises DamagedObject: there are fewer, or they are no stream of
            the object's compression
        """
        parts, left = [], size
        while left:
            try:
                data = self._reader.read(left)
            # OSError: what bz2 raises for malformed data has no errno
            except (*_BROKEN, OSError) as error:
                if isinstance(error, OSError) and error.errno:
                    raise
                raise self._damaged('it is no %s stream: %s' % (
                    self._entry.compression, error)) from error
            if not data:
                raise self._damaged(
                    'it ends after %d of %d bytes' % (
                        self.position - self._entry.offset + size - left,
                        self._entry.length))
            parts.append(data)
            left -= len(data)
        self.position += size
        return parts[0] if len(parts) == 1 else b''.join(parts)

    def _damaged(self, reason: str) -> errors.DamagedObject:
        return errors.DamagedObject(name=self._entry.name, reason=reason)
