# SPDX-License-Identifier: Apache-2.0
"""Makes the manifest of a disk while its guest writes to it.

QEMU records the writes of the guest in a bitmap.  The order is: clear the
bits of a range, then look at the range and read it.  A write that had
finished when the bits were cleared is seen by the read; every other one
sets its bit again afterwards.  So of a block whose bit is still clear at
the end the digest is right.  The other order would lose writes.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import extents as disk_extents
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.storage.libnbd import nbd

#: Bytes that are cleared and read in one step.
STEP = 2 << 20

Extents = Iterable[tuple[int, int]]


@dataclasses.dataclass
class Scanned:
    """What has been done, updated while it is.

    :ivar read: bytes read from the disk
    :ivar blocks: blocks in the manifest
    """

    read: int = 0
    blocks: int = 0


def scan(disk: nbd.NBD, clear: Callable[[int, int], None],
         pace: Callable[[int], None] | None = None,
         wanted: Extents | None = None, above_base: bool = False,
         granularity: int = blocks.BLOCK,
         scanned: Scanned | None = None) -> Iterator[bytes]:
    """Yield the bytes of the manifest of a disk.

    :param disk: connected to the node of the running guest, with the
        metadata contexts of extents.connection()
    :param clear: called with offset and length, in bytes, before these
        are read
    :param pace: called with the length before each step that is read; it
        waits as long as the guest's I/O needs
    :param wanted: (offset, length) in bytes, in the order in which they
        are to be read: what is written often comes last; None: all
    :param above_base: only what the top image has; the rest is ABSENT
    :param granularity: bytes of a bit of QEMU's bitmap, a multiple of
        blocks.BLOCK; ranges are widened to whole ones
    :param scanned: is updated
    :raises DiskUnreadable: nothing of the disk can be read any more
    """
    scanned = scanned or Scanned()
    try:
        size = disk.get_size()
        writer = manifest.Writer(size)
        yield writer.header()
        done = 0
        for offset, length in _steps(
                [(0, size)] if wanted is None else wanted, size,
                granularity):
            clear(offset, length)
            for record in records(disk, offset, length, above_base,
                                  scanned, pace):
                yield writer.record(record)
                done += record.count
                scanned.blocks = done
        yield writer.end()
    except nbd.Error as error:
        raise errors.DiskUnreadable(reason=error) from error


def _steps(wanted: Extents, size: int, granularity: int
           ) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of steps of whole granules."""
    for offset, length in wanted:
        end = min(size, -(-(offset + length) // granularity) * granularity)
        offset -= offset % granularity
        for start in range(offset, end, STEP):
            yield start, min(STEP, end - start)


def records(disk: nbd.NBD, offset: int, length: int, above_base: bool,
            scanned: Scanned, pace: Callable[[int], None] | None = None
            ) -> Iterator[manifest.Record]:
    """Yield the records of one step, whose bits have been cleared.

    :param offset: a multiple of blocks.BLOCK
    :param length: bytes, which are read at once
    :param pace: called with the length if they are
    :raises nbd.Error: the connection is lost
    """
    kinds = disk_extents.kinds(disk, offset, length, above_base)
    data = None
    if disk_extents.DATA in kinds:
        if pace is not None:
            pace(length)
        try:
            data = memoryview(disk.pread(length, offset))
            scanned.read += length
        except nbd.Error:
            if not disk.aio_is_ready():
                raise
            # A sector that cannot be read; the mirror job decides.
    run = _Run(offset // blocks.BLOCK)
    for index, kind in enumerate(kinds):
        start = index * blocks.BLOCK
        if kind == disk_extents.ABSENT:
            yield from run.add(manifest.ABSENT)
        elif kind == disk_extents.ZERO:
            yield from run.add(manifest.ZERO)
        elif data is None:
            yield from run.add(manifest.SKIPPED)
        else:
            block = data[start:start + blocks.BLOCK]
            if blocks.is_zero(block):
                yield from run.add(manifest.ZERO)
            else:
                yield from run.add(manifest.DIGESTS, blocks.digest(block))
    yield from run.end()


class _Run:
    """Blocks of one kind that follow one another.

    :param first: number of the block that comes first
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._kind = manifest.END
        self._count = 0
        self._digests: list[bytes] = []

    def add(self, kind: int, digest: bytes = b''
            ) -> Iterator[manifest.Record]:
        """Add a block; yield the run before it if that is of another kind."""
        if kind != self._kind:
            yield from self.end()
            self._kind = kind
        self._count += 1
        if digest:
            self._digests.append(digest)

    def end(self) -> Iterator[manifest.Record]:
        if self._count:
            yield manifest.Record(self._kind, self._first, self._count,
                                  b''.join(self._digests))
        self._first += self._count
        self._count = 0
        self._digests = []
