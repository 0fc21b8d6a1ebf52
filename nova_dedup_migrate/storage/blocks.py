# SPDX-License-Identifier: Apache-2.0
"""Blocks of a disk and their digests.

A disk is cut into blocks of BLOCK bytes from its beginning; the last one is
shorter if the size is no multiple.  A block's digest is the SHA-256 of its
bytes, as in Cinder's chunked backups.  Processors compute it at more than
1 GB/s a core (SHA-NI), so it is no slower than disks are.
"""

from __future__ import annotations

import dataclasses
import hashlib

BLOCK = 32 << 10
#: Formats of images that are written.
FORMATS = ('raw', 'qcow2')
#: Bytes of a digest.
DIGEST = 32
#: Bytes of the largest disk that is built: 16 TiB.
MAX_SIZE = 1 << 44
#: Sizes of disks are multiples.
SECTOR = 512

_ZEROS = bytes(BLOCK)
ZERO_DIGEST = hashlib.sha256(_ZEROS).digest()


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """A block that is wanted.

    :ivar digest: SHA-256 of its bytes
    :ivar offset: where it is in the disk, in bytes
    :ivar length: BLOCK, or less at the end of the disk
    """

    digest: bytes
    offset: int
    length: int


def digest(data: bytes | bytearray | memoryview) -> bytes:
    return hashlib.sha256(data).digest()


def is_zero(data: bytes | bytearray | memoryview) -> bool:
    """Return whether up to BLOCK bytes are all zero."""
    return _ZEROS.startswith(data)


def count(size: int) -> int:
    """Return how many blocks a disk of size bytes has."""
    return -(-size // BLOCK)


def length(number: int, size: int) -> int:
    """Return the bytes of a block of a disk of size bytes."""
    return min(BLOCK, size - number * BLOCK)
