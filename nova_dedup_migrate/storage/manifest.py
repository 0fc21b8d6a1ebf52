# SPDX-License-Identifier: Apache-2.0
"""The manifest of a disk: its blocks' digests, as a stream.

It is sent while it is made.  All numbers are big endian::

    header
         0  8  magic "NDMANIF1"
         8  8  size of the disk, in bytes
        16  4  bytes of a block: 32768
        20  4  0
    records, until END
         0  1  kind
         1  8  first block
         9  4  number of blocks, 1 or more (0 of END)
        13     kind DIGESTS: 32 bytes for each block

    kind        blocks
    0 END       none; "first" is the number of blocks in all records
    1 DIGESTS   the SHA-256 of each follows; 1024 at most
    2 ZERO      read as zeros
    3 ABSENT    not allocated above the base; no part of this disk
    4 SKIPPED   could not be read; remain unproven
    END is followed by the SHA-256 of all bytes before its own digest.

No block is in two records.  Records are in any order, so that blocks the
guest writes often can come last.  A manifest need not have all blocks of
the disk; what it lacks is not proven.

A reader knows the size of the disk before and takes no other, so a
manifest of any length costs it one bit a block of that disk, and the bytes
of one record.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import hashlib
import struct

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors

END, DIGESTS, ZERO, ABSENT, SKIPPED = range(5)
#: Digests in one record.
MAX_DIGESTS = 1024

_MAGIC = b'NDMANIF1'
_HEADER = struct.Struct('>8sQII')
_RECORD = struct.Struct('>BQI')
_MAX_COUNT = 2 ** 32 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """One record.

    :ivar digests: of kind DIGESTS, one after the other
    """

    kind: int
    first: int
    count: int
    digests: bytes = b''

    def blocks(self, size: int) -> Iterator[blocks.Block]:
        """Yield the blocks of kind DIGESTS of a disk of size bytes."""
        for index in range(self.count):
            number = self.first + index
            yield blocks.Block(
                self.digests[index * blocks.DIGEST:
                             (index + 1) * blocks.DIGEST],
                number * blocks.BLOCK, blocks.length(number, size))


class Writer:
    """Encodes records.

    :param size: bytes of the disk
    """

    def __init__(self, size: int) -> None:
        self._header = _HEADER.pack(_MAGIC, size, blocks.BLOCK, 0)
        self._hash = hashlib.sha256(self._header)
        self._blocks = 0

    def header(self) -> bytes:
        return self._header

    def record(self, record: Record) -> bytes:
        """Return the bytes of a record; a long run becomes several."""
        parts = []
        first, left, at = record.first, record.count, 0
        while left:
            count = min(left, MAX_DIGESTS if record.kind == DIGESTS
                        else _MAX_COUNT)
            parts.append(_RECORD.pack(record.kind, first, count))
            if record.kind == DIGESTS:
                parts.append(record.digests[at:at + count * blocks.DIGEST])
                at += count * blocks.DIGEST
            first, left = first + count, left - count
        data = b''.join(parts)
        self._hash.update(data)
        self._blocks += record.count
        return data

    def end(self) -> bytes:
        data = _RECORD.pack(END, self._blocks, 0)
        self._hash.update(data)
        return data + self._hash.digest()


def parse(read: Callable[[int], bytes], size: int,
          expected: bitmap.Bitmap | None = None) -> Iterator[Record]:
    """Yield the records of a manifest as they arrive.

    What is yielded is not END.  The stream as a whole is checked when it
    ends; each record is good on its own, because a block is proven by its
    digest and not by the manifest.

    :param read: returns exactly as many bytes as it is called for, or
        fewer if the stream is at its end
    :param size: bytes of the disk
    :param expected: blocks that may be in it; None: all
    :raises ManifestMalformed:
    """
    digest = hashlib.sha256()

    def take(length: int, what: str) -> bytes:
        data = read(length)
        if len(data) != length:
            raise _malformed('it ends within %s' % what)
        return data

    header = take(_HEADER.size, 'its header')
    digest.update(header)
    magic, disk, block, zero = _HEADER.unpack(header)
    if magic != _MAGIC or block != blocks.BLOCK or zero:
        raise _malformed('it begins with %.64r' % header)
    if disk != size or size > blocks.MAX_SIZE:
        raise _malformed('it is of a disk of %d bytes, not %d'
                         % (disk, size))
    seen = bitmap.Bitmap(blocks.count(size))
    total = 0
    while True:
        head = take(_RECORD.size, 'a record')
        kind, first, count = _RECORD.unpack(head)
        digest.update(head)
        if kind == END:
            if count or first != total:
                raise _malformed('it ends after %d blocks instead of %d'
                                 % (total, first))
            if take(blocks.DIGEST, 'its digest') != digest.digest():
                raise _malformed('its digest is another one')
            return
        _check(kind, first, count, seen, expected)
        payload = b''
        if kind == DIGESTS:
            payload = take(count * blocks.DIGEST, 'digests')
            digest.update(payload)
        seen.set(first, count)
        total += count
        yield Record(kind, first, count, payload)


def _check(kind: int, first: int, count: int, seen: bitmap.Bitmap,
           expected: bitmap.Bitmap | None) -> None:
    """:raises ManifestMalformed: no such record may come"""
    if kind not in (DIGESTS, ZERO, ABSENT, SKIPPED):
        raise _malformed('it has a record of kind %d' % kind)
    if not count or first + count > seen.size:
        raise _malformed('it has %d blocks from %d on, of a disk of %d'
                         % (count, first, seen.size))
    if kind == DIGESTS and count > MAX_DIGESTS:
        raise _malformed('it has a record of %d digests' % count)
    if not seen.is_clear(first, count):
        raise _malformed('it has one of the %d blocks from %d on twice'
                         % (count, first))
    if expected is not None and not expected.is_set(first, count):
        raise _malformed('it has one of the %d blocks from %d on, which '
                         'was not requested' % (count, first))


def _malformed(reason: str) -> errors.ManifestMalformed:
    return errors.ManifestMalformed(reason=reason)
