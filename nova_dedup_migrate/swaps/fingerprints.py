# SPDX-License-Identifier: Apache-2.0
"""What is known of the blocks of a volume, in a file.

A sparse file with an entry for each block (storage.blocks).  All numbers are
big endian::

    header
         0   8  magic "NDFPRNT1"
         8   8  size of the volume, in bytes
        16   4  bytes of a bit of QEMU's bitmap, a multiple of 32768
        20   4  0
        24  32  SHA-256 of the token of the watch: names the bitmap
    entries, from 4096 on
         n * 16  the first bytes of the SHA-256 of block n, as it was when
                 its bit was cleared last, or later; zeros: unknown

An entry says something only while the block's bit is clear.  So what a bit
stands for is changed in this order: the entries of a range are emptied, its
bits are cleared, it is read, the entries are written.  A process that is
killed in between leaves entries that are right or empty.  If the host goes
down, QEMU and its bitmap are gone as well; so nothing waits for the disk.
An error of the disk could bring emptied entries back, though: sync() tells.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import errno
import fcntl
import hashlib
import os
import struct

import numpy

from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.swaps import errors

#: Bytes of an entry, and where the first one is.
ENTRY = 16
FIRST = 4096
#: Entries that are read at once, a multiple of 8.
PIECE = 32 << 10

_MAGIC = b'NDFPRNT1'
_HEADER = struct.Struct('>8sQII32s')


class Fingerprints:
    """The file of one watch, which has been made; one has it open at a time.

    :param path: of the file
    :param watch: whose blocks these are
    :raises NotFillable: there is none, it is of another watch, or in use
    """

    def __init__(self, path: str, watch: watching.DiskWatch) -> None:
        self._path = path
        self.size = watch.size
        self._count = blocks.count(watch.size)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC
                               | os.O_NOFOLLOW)
        except OSError as error:
            raise errors.NotFillable(
                reason='what has been read of the volume is not there: %s'
                % error) from error
        try:
            self._check(watch)
        except BaseException:
            os.close(self._fd)
            raise

    def _check(self, watch: watching.DiskWatch) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise errors.NotFillable(
                reason='the volume is still being read') from error
        if (os.pread(self._fd, _HEADER.size, 0) != _header(watch)
                or os.fstat(self._fd).st_size != _length(watch.size)):
            raise errors.NotFillable(
                reason='%s is of another volume, or of an earlier QEMU'
                % self._path)

    @staticmethod
    def make(path: str, watch: watching.DiskWatch) -> None:
        """Make the file of a new watch, in place of any other.

        :raises NotFillable: the bits do not stand for whole blocks
        :raises OSError: as open(2)
        """
        if watch.granularity % blocks.BLOCK or watch.size > blocks.MAX_SIZE:
            raise errors.NotFillable(
                reason='QEMU records writes in granules of %d bytes to %d '
                'bytes' % (watch.granularity, watch.size))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL
                     | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, _length(watch.size))
            _write(fd, _header(watch), 0)
        finally:
            os.close(fd)

    def close(self) -> None:
        os.close(self._fd)

    def forget(self, offset: int, length: int) -> None:
        """Empty the entries of a range, before its bits are cleared.

        :param offset: in bytes, a multiple of blocks.BLOCK
        :raises OSError: as write(2)
        """
        self._store(offset // blocks.BLOCK,
                    bytes(blocks.count(length) * ENTRY))

    def note(self, first: int, digests: bytes) -> None:
        """Write the entries of blocks that have been read.

        :param digests: their SHA-256, one after the other
        :raises OSError: as write(2)
        """
        found = numpy.frombuffer(digests, 'u1').reshape(-1, blocks.DIGEST)
        self._store(first, found[:, :ENTRY].tobytes())

    def _store(self, first: int, entries: bytes) -> None:
        if first < 0 or first + len(entries) // ENTRY > self._count:
            raise IndexError(first)
        _write(self._fd, entries, FIRST + first * ENTRY)

    def sync(self) -> None:
        """Have all that was written reach the disk.

        :raises NotKept: it has not, and entries may be old ones again
        """
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise errors.NotKept(reason='%s: %s' % (
                self._path, error)) from error

    def pieces(self) -> Iterator[tuple[int, numpy.ndarray]]:
        """Yield (first block, entries), of PIECE blocks or what is left.

        :returns: entries as an array of (blocks, ENTRY) bytes
        :raises NotFillable: the file has become shorter
        """
        for first in range(0, self._count, PIECE):
            count = min(PIECE, self._count - first)
            data = os.pread(self._fd, count * ENTRY, FIRST + first * ENTRY)
            if len(data) != count * ENTRY:
                raise errors.NotFillable(reason='%s ends before its end'
                                         % self._path)
            yield first, numpy.frombuffer(data, 'u1').reshape(count, ENTRY)


def equal(entries: numpy.ndarray, digests: numpy.ndarray) -> numpy.ndarray:
    """Return which entries are known to be of the content that digests name.

    :param entries: (blocks, ENTRY) bytes, see pieces
    :param digests: (blocks or fewer, blocks.DIGEST) bytes
    :returns: a bool for each entry; False if there is no digest
    """
    there = digests[:, :ENTRY]
    known = entries[:len(there)]
    same = numpy.zeros(len(entries), bool)
    same[:len(there)] = known.any(axis=1) & (known == there).all(axis=1)
    return same


def _header(watch: watching.DiskWatch) -> bytes:
    return _HEADER.pack(_MAGIC, watch.size, watch.granularity, 0,
                        hashlib.sha256(watch.token.encode()).digest())


def _length(size: int) -> int:
    return FIRST + blocks.count(size) * ENTRY


def _write(fd: int, data: bytes, offset: int) -> None:
    """Write all of it.

    :raises OSError:
    """
    written = os.pwrite(fd, data, offset)
    if written != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
