# SPDX-License-Identifier: Apache-2.0
"""Digests of the blocks of a file on this host.

The file is read as it is, in steps past the page cache, and holes are not
read.  Blocks are counted from the beginning of the file.  For raw images
that is the guest's disk.  The clusters of a qcow2 image are aligned, so
its blocks are found as well, unless they are compressed; nothing has to be
known of the format, and no image is probed.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import errno
import mmap
import os

import numpy

from nova_dedup_migrate.images import direct
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import journal as journals
from nova_dedup_migrate.storage.index import segment

#: Bytes of one read.
STEP = 4 << 20
#: Keys of blocks that are in the base, and of zeros.
_ONES = numpy.uint64(2 ** 64 - 1)
_ZEROS = segment.keys(blocks.ZERO_DIGEST)[0]


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """What a file holds.

    :ivar stat: of the file, before it was read
    :ivar digests: of the blocks that are not zero, the part that an index
        keeps: segment.keys
    :ivar numbers: of these blocks
    :ivar zeros: blocks of zeros, holes included
    :ivar read: bytes read
    """

    stat: os.stat_result
    digests: numpy.ndarray
    numbers: numpy.ndarray
    zeros: int
    read: int


def fingerprint(fd: int, pause: Callable[[int], None] | None = None
                ) -> Fingerprints:
    """Read a file or block device.

    :param pause: called with the bytes of each read before it; it waits,
        or raises to end the work
    :raises OSError: as read(2)
    """
    stat = os.fstat(fd)
    size = direct.size(fd)
    parts: list[tuple[numpy.ndarray, numpy.ndarray]] = []
    read = 0
    with direct.uncached(fd) as file, mmap.mmap(-1, STEP) as buffer, \
            memoryview(buffer) as view:
        offset = 0
        while (offset := _data(file, offset, size)) < size:
            if pause is not None:
                pause(STEP)
            count = os.preadv(file, [buffer], offset)
            if not count:
                # It has become shorter.
                break
            count = min(count, size - offset)
            read += count
            with view[:count] as data:
                parts.append(_part(data, offset // blocks.BLOCK))
            offset += count
            if offset % blocks.BLOCK:
                # a short read at the end
                break
    empty = numpy.empty(0, segment.KEY)
    numbers = numpy.concatenate([empty, *(part[1] for part in parts)])
    return Fingerprints(
        stat, numpy.concatenate([empty, *(part[0] for part in parts)]),
        numbers, blocks.count(size) - len(numbers), read)


def of_journal(journal: journals.Journal, stat: os.stat_result
               ) -> Fingerprints:
    """Return what a raw target holds, by its journal.

    :param stat: of the target
    """
    parts = []
    for first, slots in journal.proven():
        keys = segment.keys(slots)
        used = numpy.flatnonzero((keys != 0) & (keys != _ONES)
                                 & (keys != _ZEROS))
        parts.append((keys[used], (used + first).astype(segment.KEY)))
    empty = numpy.empty(0, segment.KEY)
    return Fingerprints(
        stat, numpy.concatenate([empty, *(part[0] for part in parts)]),
        numpy.concatenate([empty, *(part[1] for part in parts)]), 0, 0)


def _part(data: memoryview, first: int
          ) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return keys and numbers of the blocks of data that are not zero."""
    digests, numbers = [], []
    for index, at in enumerate(range(0, len(data), blocks.BLOCK)):
        with data[at:at + blocks.BLOCK] as block:
            if not blocks.is_zero(block):
                digests.append(blocks.digest(block))
                numbers.append(first + index)
    return (segment.keys(b''.join(digests)),
            numpy.array(numbers, segment.KEY))


def _data(fd: int, offset: int, size: int) -> int:
    """Return where the next block with data begins, size if there is none."""
    if offset >= size:
        return size
    try:
        found = os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        if error.errno == errno.EINVAL:
            # not known, as of block devices
            return offset
        raise
    return max(offset, found - found % blocks.BLOCK)
