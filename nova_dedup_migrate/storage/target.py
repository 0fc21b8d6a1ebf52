# SPDX-License-Identifier: Apache-2.0
"""The target of a rebuild: writes blocks, reads them back, proves them."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import errno
import itertools
import os
import queue
import threading
from typing import Self

import numpy

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import canary as canaries
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import extents
from nova_dedup_migrate.storage import fetch
from nova_dedup_migrate.storage import journal as journals
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.libnbd import nbd
from nova_dedup_migrate.storage.sources import base

#: Blocks of one batch, as sources take them.
STEP = base.MAX_BLOCKS
#: Blocks of zeros of one batch: 1 GiB.
ZERO_STEP = 32 << 10
#: In a journal, of a block that is not allocated above the base.
ABSENT = b'\xff' * blocks.DIGEST


def parts(record: manifest.Record) -> Iterator[manifest.Record]:
    """Yield a record in batches."""
    step = STEP if record.kind == manifest.DIGESTS else ZERO_STEP
    for at in range(0, record.count, step):
        count = min(step, record.count - at)
        yield manifest.Record(
            record.kind, record.first + at, count,
            record.digests[at * blocks.DIGEST:
                           (at + count) * blocks.DIGEST])


class Target:
    """A target that is being filled; its methods run in several threads.

    :param daemon: has it open
    :param size: bytes of the disk
    :param journal: of this target
    :param fetcher: of blocks
    :param threads: that call at a time
    :param reuse: whether the target may have the content already
    :ivar proven: a bit a block
    """

    def __init__(self, daemon: writer.Writer, size: int,
                 journal: journals.Journal, fetcher: fetch.Fetcher,
                 threads: int, reuse: bool) -> None:
        self._daemon = daemon
        self._size = size
        self._journal = journal
        self._fetcher = fetcher
        self._reuse = reuse
        self._threads = threads
        self._stack = contextlib.ExitStack()
        self._idle: queue.SimpleQueue[nbd.NBD] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._sources: dict[str, int] = {}
        self.proven = bitmap.Bitmap(blocks.count(size))
        self.proven_count = 0

    def __enter__(self) -> Self:
        try:
            for _ in range(self._threads):
                self._idle.put(self._stack.enter_context(
                    self._daemon.connect()))
        except (OSError, nbd.Error) as error:
            self.abandon()
            raise self._daemon.failed(error) from error
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.abandon()

    def sources(self) -> dict[str, int]:
        """Return bytes proven by source."""
        with self._guard:
            return dict(self._sources)

    def begin_pass(self, runs: Sequence[tuple[int, int]]) -> None:
        """Forget blocks that the source is about to read again."""
        self._journal.begin_pass(runs)
        for first, count in runs:
            self.proven.clear(first, count)
        self.proven_count = self.proven.count()

    def recorded(self) -> Iterator[tuple[int, int]]:
        """Yield (first, count) of blocks that the journal may have."""
        return self._journal.recorded()

    def verify(self, first: int, count: int) -> int:
        """Prove again, or fetch, blocks that the journal has; return count."""
        slots = self._journal.slots(first, count)
        if all(slot == journals.EMPTY for slot in slots):
            return count
        try:
            with self._connection() as handle:
                good = self._compare(handle, first, slots)
                for value, index, length in _runs(good):
                    if value:
                        self._prove(first + index, length, 'kept')
                    else:
                        self._restore(handle, first + index,
                                      slots[index:index + length])
        except nbd.Error as error:
            raise self._failure(error) from error
        return count

    def _restore(self, handle: nbd.NBD, first: int, slots: list[bytes]
                 ) -> None:
        """Fetch blocks that the target lacks, by digests of the journal.

        The digests are those of the source's disk, whether or not this
        target ever had the blocks.
        """
        for known, index, length in _runs([
                slot not in (journals.EMPTY, ABSENT) for slot in slots]):
            at = first + index
            if known:
                self._fill_data(handle, manifest.Record(
                    manifest.DIGESTS, at, length,
                    b''.join(slots[index:index + length])))
            for number in range(at, at + length):
                if not self.proven[number]:
                    self._journal.forget(number, 1)

    def trust(self) -> None:
        """Take what the journal has for proven: nobody else has written."""
        for first, slots in self._journal.proven():
            used = numpy.frombuffer(slots, numpy.uint8).reshape(
                -1, blocks.DIGEST).any(axis=1)
            bounds = numpy.flatnonzero(numpy.diff(
                used, prepend=False, append=False)).tolist()
            for start, end in zip(bounds[::2], bounds[1::2], strict=True):
                self._prove(first + start, end - start, 'kept')

    def _compare(self, handle: nbd.NBD, first: int, slots: list[bytes]
                 ) -> list[bool]:
        """Return for each slot whether the target's block agrees."""
        span = self._range(first, len(slots))
        kinds = extents.kinds(handle, *span)
        if all(kind == extents.ZERO and slot == blocks.ZERO_DIGEST
               for kind, slot in zip(kinds, slots, strict=True)):
            return [True] * len(slots)
        good = [blocks.digest(content) == slot
                for content, slot in zip(
                    self._read(handle, first, len(slots)), slots,
                    strict=True)]
        if ABSENT in slots:
            depths = extents.kinds(handle, *span, True)
            for index, slot in enumerate(slots):
                if slot == ABSENT:
                    good[index] = depths[index] == extents.ABSENT
        return good

    def fill(self, record: manifest.Record, count: int) -> int:
        """Deal with one batch; return count.

        :raises StorageError: the target is of no use any more
        """
        try:
            with self._connection() as handle:
                if record.kind == manifest.DIGESTS:
                    self._fill_data(handle, record)
                elif record.kind == manifest.ZERO:
                    self._fill_zeros(handle, record)
                elif record.kind == manifest.ABSENT:
                    self._fill_absent(handle, record)
        except nbd.Error as error:
            raise self._failure(error) from error
        return count

    def _fill_data(self, handle: nbd.NBD, record: manifest.Record) -> None:
        wanted = list(record.blocks(self._size))
        origin = [''] * record.count
        if self._reuse:
            for index, there in enumerate(self._read(
                    handle, record.first, record.count)):
                if blocks.digest(there) == wanted[index].digest:
                    origin[index] = 'kept'
        found = self._fetcher.fetch([
            block for block, name in zip(wanted, origin, strict=True)
            if not name])
        content: list[bytes] = [b''] * record.count
        for index, block in enumerate(wanted):
            if not origin[index] and block.digest in found:
                content[index], used = found[block.digest]
                origin[index] = used.source.name
        for new, index, length in _runs([bool(data) for data in content]):
            if new:
                handle.pwrite(b''.join(content[index:index + length]),
                              wanted[index].offset)
        for name, index, length in _runs(origin):
            if name:
                self._read_back(handle, wanted[index:index + length], name)

    def _read_back(self, handle: nbd.NBD, wanted: Sequence[blocks.Block],
                   name: str) -> None:
        """Prove blocks by what the target returns."""
        first = wanted[0].offset // blocks.BLOCK
        data = self._read(handle, first, len(wanted))
        good = [blocks.digest(content) == block.digest
                for block, content in zip(wanted, data, strict=True)]
        for value, index, length in _runs(good):
            if value:
                self._journal.prove(first + index, [
                    block.digest for block in wanted[index:index + length]])
                self._prove(first + index, length, name)

    def _fill_zeros(self, handle: nbd.NBD, record: manifest.Record) -> None:
        kinds = extents.kinds(handle, *self._range(record.first,
                                                   record.count))
        for kind, index, length in _runs(kinds):
            first = record.first + index
            if kind == extents.ZERO:
                self._prove_zeros(first, length)
                continue
            for at in range(first, first + length, STEP):
                count = min(STEP, first + length - at)
                if not self._are_zeros(handle, at, count):
                    offset, span = self._range(at, count)
                    if handle.can_zero():
                        handle.zero(span, offset)
                    else:
                        handle.pwrite(bytes(span), offset)
                    if not self._are_zeros(handle, at, count):
                        continue
                self._prove_zeros(at, count)

    def _are_zeros(self, handle: nbd.NBD, first: int, count: int) -> bool:
        return all(blocks.is_zero(content)
                   for content in self._read(handle, first, count))

    def _prove_zeros(self, first: int, count: int) -> None:
        short = blocks.length(first + count - 1, self._size)
        digests = [blocks.ZERO_DIGEST] * count
        if short < blocks.BLOCK:
            digests[-1] = blocks.digest(bytes(short))
        self._journal.prove(first, digests)
        self._prove(first, count, 'zero')

    def _fill_absent(self, handle: nbd.NBD, record: manifest.Record
                     ) -> None:
        """Prove blocks that both take from their bases."""
        kinds = extents.kinds(handle, *self._range(
            record.first, record.count), True)
        for kind, index, length in _runs(kinds):
            if kind == extents.ABSENT:
                self._journal.prove(record.first + index,
                                    [ABSENT] * length)
                self._prove(record.first + index, length, 'absent')

    def place_canary(self, proven: bitmap.Bitmap, granularity: int
                     ) -> canaries.Canary:
        """Write a canary and flush.

        :param proven: granules; one may lose its bit
        :raises TargetFailed:
        """
        canary = canaries.choose(proven, granularity)
        first = canary.offset // blocks.BLOCK
        try:
            with self._connection() as handle:
                # What a later run must not take for proven.
                self._journal.begin_pass([(first, 1)])
                handle.pwrite(canary.data, canary.offset)
                handle.flush()
                there = handle.pread(len(canary.data), canary.offset)
        except nbd.Error as error:
            raise self._failure(error) from error
        if there != canary.data:
            raise self._daemon.failed('it does not return what was written')
        return canary

    def _prove(self, first: int, count: int, name: str) -> None:
        offset, length = self._range(first, count)
        with self._guard:
            self.proven.set(first, count)
            self.proven_count += count
            self._sources[name] = self._sources.get(name, 0) + length

    def _range(self, first: int, count: int) -> tuple[int, int]:
        """Return (offset, length) in bytes."""
        offset = first * blocks.BLOCK
        return offset, min(self._size - offset, count * blocks.BLOCK)

    def _read(self, handle: nbd.NBD, first: int, count: int
              ) -> list[memoryview]:
        offset, length = self._range(first, count)
        data = memoryview(handle.pread(length, offset))
        return [data[at:at + blocks.BLOCK]
                for at in range(0, length, blocks.BLOCK)]

    @contextlib.contextmanager
    def _connection(self) -> Iterator[nbd.NBD]:
        handle = self._idle.get()
        try:
            yield handle
        finally:
            self._idle.put(handle)

    def _failure(self, error: nbd.Error) -> errors.StorageError:
        if error.errno == errno.errorcode[errno.ENOSPC]:
            free = os.fstatvfs(self._daemon.fd)
            return errors.NoSpace(path=self._daemon.path, reserve=0,
                                  free=free.f_bavail * free.f_frsize)
        return self._daemon.failed(error)

    def close(self) -> None:
        """Close the connections."""
        self._stack.close()

    def abandon(self) -> None:
        """End the daemon, which ends every call that waits for it."""
        self._daemon.abandon()
        with contextlib.suppress(nbd.Error):
            self._stack.close()


def _runs(values: Sequence) -> Iterator[tuple]:
    """Yield (value, index, length) of equal neighbours."""
    index = 0
    for value, group in itertools.groupby(values):
        length = len(list(group))
        yield value, index, length
        index += length
