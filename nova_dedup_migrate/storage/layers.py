# SPDX-License-Identifier: Apache-2.0
"""Layers that can be read: a local file, and a range of HTTP."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import errno
import os
from typing import BinaryIO

from nova_dedup_migrate.images import paths
from nova_dedup_migrate.storage import chain

#: Bytes beyond what was requested that an answer may have.
_SPARE = 1


class FileLayer(chain.Layer):
    """A raw file of this host, such as an image in _base.

    :param path: of the file
    :param roots: directories that it may be in
    :raises OSError: or paths.PathRefused: it cannot be opened
    """

    def __init__(self, path: str, roots: paths.Roots) -> None:
        with contextlib.ExitStack() as stack:
            self._fd = stack.enter_context(paths.open_file(path, roots))
            self._stack = stack.pop_all()

    def ranges(self) -> Iterator[tuple[int, int]]:
        size = os.fstat(self._fd).st_size
        offset = 0
        while offset < size:
            try:
                start = os.lseek(self._fd, offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            offset = os.lseek(self._fd, start, os.SEEK_HOLE)
            yield start, offset - start

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._fd, length, offset)

    def close(self) -> None:
        self._stack.close()


class RangeLayer(chain.Layer):
    """All of an image that a server returns by ranges.

    :param open_range: returns a file of the bytes of a range (HTTP's Range
        header), for an offset and a length; it raises OSError if the
        server does not return just that range
    :param size: bytes of the image
    """

    def __init__(self, open_range: Callable[[int, int], BinaryIO],
                 size: int) -> None:
        self._open_range = open_range
        self._size = size

    def ranges(self) -> Iterator[tuple[int, int]]:
        yield 0, self._size

    def read(self, offset: int, length: int) -> bytes:
        parts, left = [], length
        with self._open_range(offset, length) as answer:
            # A server that sends without end is stopped.
            while left and (data := answer.read(left)):
                parts.append(data)
                left -= len(data)
            if not left and answer.read(_SPARE):
                raise OSError('the server sends more than the range')
        return b''.join(parts)
