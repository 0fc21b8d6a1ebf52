# SPDX-License-Identifier: Apache-2.0
"""Which blocks of a target are proven, kept over restarts.

A journal is a sparse file with a slot for each block.  All numbers are big
endian::

    header
         0   8  magic "NDJOURN1"
         8   8  size of the disk, in bytes
        16   4  bytes of a block: 32768
        20   4  0
        24   8  device number of the target's file system
        32   8  inode number of the target
        40  32  watch: names the bitmap in which the source's QEMU records
                writes
        72  32  SHA-256 of the bytes before
    slots, from 4096 on
         n * 32  the SHA-256 of block n, as the manifest had it and as it
                 was read back from the target; zeros: not proven

A slot is not trusted when the journal is opened again: the block is read
from the target and compared, so a slot that was written in part, or before
the block reached the disk, does no harm.

What a slot stands for changes when the source clears the block's bit
again, for a later pass.  From then on a write that came before it is
recorded nowhere else.  So a pass begins with begin_pass(), which empties
the slots of its blocks and returns when that is on the disk, and only then
is the source called.

For the same reason a watch has one journal.  That of a replica is handed
over to the migration, and the replica has none any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import errno
import fcntl
import hashlib
import os
import struct

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors

WATCH = 32
EMPTY = bytes(blocks.DIGEST)

_MAGIC = b'NDJOURN1'
_HEADER = struct.Struct('>8sQIIQQ32s')
_FIRST = 4096
#: Slots read at once.
_SLOTS = 32 << 10
#: Bytes written at once where slots are emptied.
_CHUNK = 1 << 20


class Journal:
    """The journal of one target.

    :param path: of the file, which is made if there is none
    :param size: bytes of the disk
    :param target: (device, inode) numbers of the target
    :param watch: WATCH bytes
    :raises JournalUnusable: it is damaged, in use, or of another disk,
        target or watch
    :raises OSError: as open(2)
    """

    def __init__(self, path: str, size: int, target: tuple[int, int],
                 watch: bytes) -> None:
        if len(watch) != WATCH or size > blocks.MAX_SIZE:
            raise ValueError('a watch is %d bytes, and a disk at most %d'
                             % (WATCH, blocks.MAX_SIZE))
        self.path = path
        self._size = size
        self._watch = watch
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                           | os.O_NOFOLLOW, 0o600)
        try:
            self._lock()
            self._check(_header(size, target, watch))
        except BaseException:
            os.close(self._fd)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise errors.JournalUnusable(
                path=self.path,
                reason='another process uses it') from error

    def _check(self, header: bytes) -> None:
        length = _FIRST + blocks.count(self._size) * blocks.DIGEST
        found = os.fstat(self._fd).st_size
        if not found:
            os.ftruncate(self._fd, length)
            self._write(header, 0)
            os.fdatasync(self._fd)
            return
        there = os.pread(self._fd, len(header), 0)
        if there == bytes(len(header)) and found == length:
            # The process that made it was killed before it wrote this;
            # no slot can be there.
            os.ftruncate(self._fd, 0)
            os.ftruncate(self._fd, length)
            self._write(header, 0)
        elif there != header:
            raise errors.JournalUnusable(path=self.path,
                                         reason=_difference(there, header))
        elif found != length:
            raise errors.JournalUnusable(
                path=self.path, reason='it has %d bytes instead of %d'
                % (found, length))

    def slots(self, first: int, count: int) -> list[bytes]:
        """Return the slots of blocks; EMPTY of those not proven."""
        data = os.pread(self._fd, count * blocks.DIGEST,
                        _FIRST + first * blocks.DIGEST)
        if len(data) != count * blocks.DIGEST:
            raise errors.JournalUnusable(
                path=self.path, reason='it has become shorter')
        return [data[at:at + blocks.DIGEST]
                for at in range(0, len(data), blocks.DIGEST)]

    def recorded(self) -> Iterator[tuple[int, int]]:
        """Yield (first, count) of slots that may not be EMPTY."""
        count = blocks.count(self._size)
        at = 0
        while at < count:
            try:
                data = os.lseek(self._fd, _FIRST + at * blocks.DIGEST,
                                os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                raise
            first = max(at, (data - _FIRST) // blocks.DIGEST)
            hole = os.lseek(self._fd, data, os.SEEK_HOLE)
            at = min(count, -(-(hole - _FIRST) // blocks.DIGEST))
            if at > first:
                yield first, at - first

    def proven(self) -> Iterator[tuple[int, bytes]]:
        """Yield (first, slots) of parts that may have slots in use."""
        for first, count in self.recorded():
            for at in range(first, first + count, _SLOTS):
                step = min(_SLOTS, first + count - at)
                yield at, b''.join(self.slots(at, step))

    def prove(self, first: int, digests: Iterable[bytes]) -> None:
        """Enter what was read back from the target, from a block on."""
        self._write(b''.join(digests), _FIRST + first * blocks.DIGEST)

    def forget(self, first: int, count: int) -> None:
        """Empty slots."""
        start = _FIRST + first * blocks.DIGEST
        end = start + count * blocks.DIGEST
        for at in range(start, end, _CHUNK):
            length = min(_CHUNK, end - at)
            # What is a hole stays one.
            if any(os.pread(self._fd, length, at)):
                self._write(bytes(length), at)

    def begin_pass(self, extents: Iterable[tuple[int, int]]) -> None:
        """Empty the slots of what the source is about to clear.

        :param extents: (first block, number of blocks)
        """
        for first, count in extents:
            self.forget(first, count)
        os.fdatasync(self._fd)

    def set_target(self, target: tuple[int, int]) -> None:
        """Be the journal of another target; none of it is proven there."""
        self._write(_header(self._size, target, self._watch), 0)
        os.fdatasync(self._fd)

    def _write(self, data: bytes, offset: int) -> None:
        view = memoryview(data)
        while view:
            try:
                written = os.pwrite(self._fd, view, offset)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                free = os.fstatvfs(self._fd)
                raise errors.NoSpace(
                    path=self.path, reserve=0,
                    free=free.f_bavail * free.f_frsize) from error
            view, offset = view[written:], offset + written

    def close(self) -> None:
        os.close(self._fd)


def hand_over(path: str, new: str, size: int, target: tuple[int, int],
              watch: bytes) -> None:
    """Make the journal of a replica that of a migration's target.

    Its blocks are not there yet: who opens it finds that when it compares.

    :param path: is renamed to new
    :param target: (device, inode) numbers of the migration's
    :raises JournalUnusable: it is damaged, in use, or of another disk or
        watch
    :raises OSError: as open(2)
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        there = os.pread(fd, _HEADER.size + blocks.DIGEST, 0)
    finally:
        os.close(fd)
    if len(there) != _HEADER.size + blocks.DIGEST:
        raise errors.JournalUnusable(path=path,
                                     reason='its header is damaged')
    *_, device, inode, _ = _HEADER.unpack_from(there)
    journal = Journal(path, size, (device, inode), watch)
    try:
        journal.set_target(target)
    finally:
        journal.close()
    os.rename(path, new)


def _header(size: int, target: tuple[int, int], watch: bytes) -> bytes:
    head = _HEADER.pack(_MAGIC, size, blocks.BLOCK, 0, *target, watch)
    return head + hashlib.sha256(head).digest()


def _difference(there: bytes, header: bytes) -> str:
    """Return what in a header is not as it should be."""
    head = there[:_HEADER.size]
    if (len(there) != len(header)
            or hashlib.sha256(head).digest() != there[_HEADER.size:]):
        return 'its header is damaged'
    theirs, ours = _HEADER.unpack(head), _HEADER.unpack(
        header[:_HEADER.size])
    for what, one, other in zip(
            ('format', 'disk size', 'block size', 'format', 'file system',
             'target', 'watch of the source'), theirs, ours, strict=True):
        if one != other:
            return 'it is of another ' + what
    return 'its header is damaged'
