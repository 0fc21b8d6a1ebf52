# SPDX-License-Identifier: Apache-2.0
"""Reads that reach storage, past the page cache of this host."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import errno
import mmap
import os

from nova_dedup_migrate.images import paths

#: Good for every disk there is, and a page.
BLOCK = 4096


@contextlib.contextmanager
def uncached(fd: int) -> Iterator[int]:
    """Give a descriptor of what fd has open whose reads reach storage.

    That is O_DIRECT; if a file system has none, the pages that are cached
    are dropped first.
    """
    try:
        direct = paths.reopen(fd, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        direct = paths.reopen(fd, os.O_RDONLY)
        os.posix_fadvise(direct, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        yield direct
    finally:
        os.close(direct)


def read(fd: int, offset: int, length: int) -> bytes:
    """Return up to length bytes from offset, both multiples of BLOCK.

    Fewer come at the end of the file only.
    """
    with mmap.mmap(-1, length) as buffer:
        count = os.preadv(fd, [buffer], offset)
        return buffer[:count]


def size(fd: int) -> int:
    """Return the size of a file or a block device."""
    return os.lseek(fd, 0, os.SEEK_END)
