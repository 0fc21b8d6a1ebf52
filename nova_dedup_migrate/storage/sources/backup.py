# SPDX-License-Identifier: Apache-2.0
"""Blocks of a volume from its newest backup.

The backup's SHA-256 say which blocks it has, so have() reads nothing.
Backups are read fast only forwards, because a compressed object has to be
decompressed from its beginning.  So what is fetched is a window: all that
the backup has of a stretch of the volume, which is kept for the calls that
follow.  Those who fill a disk go through it forwards, so the next windows are
fetched while they write: otherwise network and disk would wait for each other.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
import concurrent.futures
import threading
from typing import BinaryIO

import numpy

from nova_dedup_migrate.backups import errors as backup_errors
from nova_dedup_migrate.backups import frames
from nova_dedup_migrate.backups import reader
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage.sources import base

#: Bytes of a window, and how many are kept: more than there are threads
#: that fill a disk.
WINDOW = 8 << 20
KEPT = 8
#: Windows that are fetched before they are needed.
_AHEAD = 2

_Window = dict[int, bytes]


class BackupSource(base.Source):
    """Reads a volume's newest backup.

    :param backup: is opened, and closed with the source
    :ivar size: bytes of the volume in the backup
    :ivar fetched: bytes that came from the backup
    :raises SourceFailed: there is no backup that can be used
    """

    name = 'backup'
    cost = base.Cost(rate=150e6, latency=0.01)

    def __init__(self, backup: reader.BackupReader) -> None:
        self._backup = backup
        self._guard = threading.Lock()
        self._windows: collections.OrderedDict[
            int, concurrent.futures.Future[_Window]] = (
                collections.OrderedDict())
        # One connection: one window after the other.
        self._pool = concurrent.futures.ThreadPoolExecutor(1, 'dedup-backup')
        self._closed = False
        self.fetched = 0
        try:
            self._file: BinaryIO = backup.open()
        except backup_errors.BackupError as error:
            raise self._failed(error) from error
        if backup.unit != blocks.BLOCK:
            unit = backup.unit
            self._file.close()
            backup.close()
            raise self._failed(
                'its SHA-256 are of %d bytes each, and those of disks of %d. '
                'Set the block size of the SHA-256 in cinder.conf back to '
                'its default and make a full backup' % (unit, blocks.BLOCK))
        self.size = backup.size
        # Without numpy.memmap's own work for each of its parts.
        self._digests = numpy.memmap(
            self._file, 'u1', 'r', shape=(
                blocks.count(backup.size), blocks.DIGEST)).view(numpy.ndarray)

    def have(self, wanted: Sequence[blocks.Block]) -> list[bool]:
        return [self._has(block) for block in wanted]

    def digest(self, number: int) -> bytes:
        """Return the SHA-256 of a block of the backup."""
        return self._digests[number].tobytes()

    def digests(self, first: int, count: int) -> numpy.ndarray:
        """Return the SHA-256 of blocks, (count or fewer, DIGEST) bytes."""
        return self._digests[first:first + count]

    def read(self, wanted: Sequence[blocks.Block]) -> list[bytes | None]:
        if self._closed:
            raise self._failed('it has been closed')
        found: list[bytes | None] = [None] * len(wanted)
        hits = sorted((block.offset, number)
                      for number, block in enumerate(wanted)
                      if self._has(block))
        for offset, number in hits:
            block = wanted[number]
            if block.digest == blocks.ZERO_DIGEST:
                found[number] = bytes(block.length)
            else:
                found[number] = self._window(offset // WINDOW).get(offset)
        return found

    def _has(self, block: blocks.Block) -> bool:
        """Return whether a block is in the backup, at its place."""
        number, rest = divmod(block.offset, blocks.BLOCK)
        return (not rest and block.offset + block.length <= self.size
                and block.length == blocks.length(number, self.size)
                and self._digests[number].tobytes() == block.digest)

    def _window(self, number: int) -> _Window:
        with self._guard:
            if self._closed:
                raise self._failed('it has been closed')
            window = self._begin(number)
            for ahead in range(number + 1, number + 1 + _AHEAD):
                if ahead * WINDOW < self.size:
                    self._begin(ahead)
        try:
            return window.result()
        except concurrent.futures.CancelledError as error:
            raise self._failed('it has been closed') from error
        except Exception:
            # The next call may find another daemon.
            with self._guard:
                if self._windows.get(number) is window:
                    del self._windows[number]
            raise

    def _begin(self, number: int) -> concurrent.futures.Future[_Window]:
        """Return a window that is being fetched, or has been."""
        window = self._windows.get(number)
        if window is None:
            window = self._windows[number] = self._pool.submit(
                self._fetch, number)
            if len(self._windows) > KEPT:
                self._windows.popitem(last=False)
        return window

    def _fetch(self, number: int) -> _Window:
        window: _Window = {}
        start = number * WINDOW
        length = min(WINDOW, self.size - start)
        try:
            for frame in self._backup.stream([(start, length)]):
                if frame.kind != frames.DATA:
                    continue
                self.fetched += frame.length
                for at in range(0, frame.length, blocks.BLOCK):
                    window[frame.offset + at] = frame.data[
                        at:at + blocks.BLOCK]
                if len(window) > WINDOW // blocks.BLOCK:
                    raise self._failed('it sends what was not requested')
        except backup_errors.BackupError as error:
            raise self._failed(error) from error
        return window

    def close(self) -> None:
        with self._guard:
            self._closed = True
            self._windows.clear()
        # Ends a call that waits for the network.
        self._backup.close()
        self._pool.shutdown(cancel_futures=True)
        if not self._file.closed:
            self._file.close()

    def _failed(self, reason: object) -> errors.SourceFailed:
        return errors.SourceFailed(name=self.name, reason=reason)
