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

#: Bytes of one read.
STEP = 4 << 20


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """What a file holds.

    :ivar stat: of the file, before it was read
    :ivar digests: of the blocks that are not zero, one after the other
    :ivar numbers: of these blocks
    :ivar zeros: blocks of zeros, holes included
    :ivar read: bytes read
    """

    stat: os.stat_result
    digests: bytes
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
    digests: list[bytes] = []
    numbers: list[int] = []
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
            for at in range(0, count, blocks.BLOCK):
                block = view[at:min(count, at + blocks.BLOCK)]
                if not blocks.is_zero(block):
                    digests.append(blocks.digest(block))
                    numbers.append((offset + at) // blocks.BLOCK)
                block.release()
            offset += count
            if offset % blocks.BLOCK:
                # a short read at the end
                break
    return Fingerprints(stat, b''.join(digests),
                        numpy.array(numbers, numpy.uint64),
                        blocks.count(size) - len(numbers), read)


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
