# SPDX-License-Identifier: Apache-2.0
"""Builds a disk from sources near by and proves it, block by block.

::

    journal: what the guest has written since an earlier run is forgotten
    journal: what that run proved -> read from the target, compared; what
             is not there is fetched by its digest
    journal: the blocks of this pass are forgotten, on the disk
    source:  clears, reads, streams the manifest of these blocks
      each block: fetched from a source -> written -> read back -> SHA-256
                  equal to the manifest's: proven; anything else: not
    canary, flush, daemon ends, file is the same one

What is not proven is mirrored by QEMU.  So every failure of a source, and
of the manifest's end, costs bytes on the link and never a wrong disk.

For the same reason a run may stop early, with what is proven by then: when
its time is over, when free space falls below the reserve, or when the
source cannot read on.  Nothing is begun any more, what is queued is
dropped, and the threads that write have ended before the canary is placed.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import concurrent.futures
import contextlib
import dataclasses
import os
import threading
import time

from nova_dedup_migrate.images import paths
from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import canary as canaries
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import fetch
from nova_dedup_migrate.storage import identity
from nova_dedup_migrate.storage import journal as journals
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.storage import target as targets
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.sources import base

#: Batches that wait for a thread, for each thread.
_QUEUED = 2

#: Called with the (offset, length) whose bits the source is to clear and
#: read; returns a function that returns as many bytes of the manifest as
#: it is called for, fewer at the end.  It raises StorageError if the
#: source is gone, and must not wait for ever.
OpenManifest = Callable[[list[tuple[int, int]]], Callable[[int], bytes]]


@dataclasses.dataclass(frozen=True)
class Disk:
    """The disk that is built.

    :ivar image: where; the file exists and has its size
    :ivar backing: the target's backing files, the top one first
    :ivar size: bytes that the guest sees
    :ivar granularity: bytes of a bit of QEMU's bitmap
    :ivar journal: path of the journal
    :ivar watch: names the source's bitmap (journal.WATCH bytes)
    """

    image: writer.Image
    size: int
    journal: str
    watch: bytes
    granularity: int = 64 << 10
    backing: tuple[writer.Image, ...] = ()

    def __post_init__(self) -> None:
        if (self.granularity % blocks.BLOCK
                or self.granularity & self.granularity - 1):
            raise ValueError('the granularity %d is no power of two of at '
                             'least %d' % (self.granularity, blocks.BLOCK))
        if not 0 < self.size <= blocks.MAX_SIZE or self.size % blocks.SECTOR:
            raise ValueError('%d is no size of a disk' % self.size)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a run may use.

    :ivar seconds: after which nothing more is begun
    :ivar stall: seconds for one call of a source
    :ivar reserve: bytes that stay free in the target's file system;
        nothing more is begun if there are fewer
    :ivar threads: that fetch, write and read at a time
    """

    seconds: float = 3600.0
    stall: float = 30.0
    reserve: int = 1 << 30
    threads: int = 4


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is.

    :ivar done: blocks that were dealt with, of total
    :ivar proven: blocks
    :ivar sources: bytes by source, see Rebuilt
    """

    done: int
    total: int
    proven: int
    sources: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Rebuilt:
    """What a run has built.

    :ivar proven: a bit for each granule that is equal to the source's
        disk as it was when its bit was cleared
    :ivar canary: random bytes, in a granule that is not proven; None in
        a replica
    :ivar identity: of the target, to be checked again before it is used
    :ivar sources: bytes proven by source; 'zero' neither read nor
        written, 'kept' was there, 'absent' is in the base
    :ivar left: source -> why it was not used to the end
    :ivar seconds: that it took
    :ivar stopped: in words, why not all was dealt with; '' if it was
    """

    proven: bitmap.Bitmap
    canary: canaries.Canary | None
    identity: identity.Identity
    sources: dict[str, int]
    left: dict[str, str]
    seconds: float
    stopped: str = ''


class Rebuild:
    """One run.

    :param disk: what is built
    :param sources: are closed at the end
    :param limits: of the run
    :param progress: called with a Progress each half second, and when
        something was done; run() ends with what it raises
    :param on_filled: called with the journal when all has been filled
    :param reuse: whether to read the target before a source, because it
        may have the content already
    :param program: path of qemu-storage-daemon
    :param roots: directories that images may be in; None: any
    :param replica: whether it is a replica, which no mirror writes to: it
        has no canary
    :param opener: of the target
    :param trusted: the target after an earlier run of this process: if it
        has not changed, what the journal has is not read again
    """

    def __init__(self, disk: Disk, sources: Sequence[base.Source],
                 limits: Limits | None = None,
                 progress: Callable[[Progress], None] | None = None,
                 on_filled: Callable[[journals.Journal], None] | None = None,
                 reuse: bool = False,
                 program: str = 'qemu-storage-daemon',
                 roots: paths.Roots = None, replica: bool = False,
                 trusted: identity.Identity | None = None,
                 opener: type[writer.Writer] = writer.Writer) -> None:
        self._opener = opener
        self._replica = replica
        self._trusted = trusted
        self._disk = disk
        self._limits = limits or Limits()
        self._report = progress
        self._on_filled = on_filled
        self._reuse = reuse
        self._program = program
        self._roots = roots
        self._fetcher = fetch.Fetcher(sources, self._limits.stall,
                                      self._limits.threads)
        self._aborted = threading.Event()
        self._finishing = threading.Event()
        self._begun = time.monotonic()
        #: why nothing more is begun, and why the manifest has ended
        self._stopped: errors.StorageError | None = None
        self._unread: errors.StorageError | None = None
        self._done = 0
        self._total = blocks.count(disk.size)

    def abort(self) -> None:
        """Make run() raise Aborted soon; may be called by any thread."""
        self._aborted.set()

    def finish(self) -> None:
        """Make run() return soon, as if its time were over.

        May be called by any thread.  One that reads the manifest may wait
        for it: the caller has to end that.
        """
        self._finishing.set()

    def run(self, open_manifest: OpenManifest,
            written: bitmap.Bitmap | None = None) -> Rebuilt:
        """Build what is not proven yet.

        :param written: granules that the guest has written since an
            earlier run with the same watch and journal; what the journal
            has of them is forgotten
        :raises StorageError: nothing can be used; what was proven is in
            the journal.  A run that stops early raises why if nothing is
            proven, or if it is for a replica, which has to be complete
        """
        self._begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            stack.callback(self._fetcher.close)
            daemon = self._opener(self._disk.image, self._disk.backing,
                                  self._program, self._roots)
            stack.callback(daemon.abandon)
            if daemon.size != self._disk.size:
                raise daemon.failed('it has %d bytes instead of %d'
                                    % (daemon.size, self._disk.size))
            there = identity.Identity.of(daemon.fd)
            journal = journals.Journal(
                self._disk.journal, self._disk.size,
                (there.device, there.inode), self._disk.watch)
            stack.callback(journal.close)
            target = stack.enter_context(targets.Target(
                daemon, self._disk.size, journal, self._fetcher,
                self._limits.threads, self._reuse))
            self._over()
            if written is not None:
                target.begin_pass(list(self._blocks(written)))
            if self._trusted == there:
                target.trust()
            else:
                self._resume(target)
            self._fill(target, open_manifest)
            stopped = self._stopped or self._unread
            if stopped is not None:
                if self._replica or not target.proven_count:
                    raise stopped
            elif self._on_filled is not None:
                self._on_filled(journal)
            proven = target.proven.coarser(
                self._disk.granularity // blocks.BLOCK)
            canary = None if self._replica else target.place_canary(
                proven, self._disk.granularity)
            target.close()
            daemon.close()
            same = identity.Identity.of(daemon.path)
            if (same.device, same.inode) != (there.device, there.inode):
                raise errors.TargetReplaced(
                    path=daemon.path, reason='its inode is %d instead of %d'
                    % (same.inode, there.inode))
        self._tell(target)
        return Rebuilt(
            proven, canary, same, target.sources(),
            {used.source.name: used.left for used in self._fetcher.used
             if used.left}, time.monotonic() - self._begun,
            '' if stopped is None else str(stopped))

    def _resume(self, target: targets.Target) -> None:
        """Prove again what the journal has."""
        self._spread(target, (
            (target.verify, at, min(targets.STEP, first + count - at))
            for first, count in target.recorded()
            for at in range(first, first + count, targets.STEP)))

    def _fill(self, target: targets.Target, open_manifest: OpenManifest
              ) -> None:
        wanted = self._wanted(target.proven)
        runs = list(wanted.runs())
        self._total = wanted.count()
        if not runs or self._over():
            return
        target.begin_pass(runs)
        try:
            read = open_manifest(list(wanted.extents(blocks.BLOCK,
                                                     self._disk.size)))
        except errors.StorageError:
            if not self._over():
                raise
            return
        self._spread(target, (
            (target.fill, part, part.count)
            for record in self._records(read, wanted)
            for part in targets.parts(record)))

    def _records(self, read: Callable[[int], bytes], wanted: bitmap.Bitmap
                 ) -> Iterator[manifest.Record]:
        """Yield the manifest as far as it is to be had.

        Each record is good on its own.
        """
        try:
            yield from manifest.parse(read, self._disk.size, wanted)
        except errors.DiskUnreadable as error:
            self._unread = error
        except errors.StorageError:
            # The connection was ended because the time is over.
            if not self._over():
                raise

    def _wanted(self, proven: bitmap.Bitmap) -> bitmap.Bitmap:
        """Return the blocks of this pass, whole granules."""
        wanted = bitmap.Bitmap(proven.size)
        wanted.set(0, wanted.size)
        for first, count in self._blocks(proven.coarser(
                self._disk.granularity // blocks.BLOCK)):
            wanted.clear(first, count)
        return wanted

    def _blocks(self, granules: bitmap.Bitmap) -> Iterator[tuple[int, int]]:
        """Yield (first, count) of the blocks of granules."""
        disk = self._disk
        if granules.size != -(-disk.size // disk.granularity):
            raise ValueError('a bitmap of granules has %d bits instead of '
                             '%d' % (granules.size,
                                     -(-disk.size // disk.granularity)))
        for offset, length in granules.extents(disk.granularity, disk.size):
            yield offset // blocks.BLOCK, blocks.count(length)

    def _spread(self, target: targets.Target, work: Iterable[tuple]
                ) -> None:
        """Do work in threads, a few at a time, until the run is over.

        All of them have returned when this does.

        :param work: yields (function, argument, number of blocks); the
            function takes the argument and the number
        :raises StorageError: one of them, or work, failed
        """
        self._done = 0
        pending: set[concurrent.futures.Future] = set()
        with concurrent.futures.ThreadPoolExecutor(
                self._limits.threads, 'dedup-rebuild') as pool:
            try:
                for function, argument, count in work:
                    if self._over():
                        break
                    pending.add(pool.submit(function, argument, count))
                    if len(pending) >= _QUEUED * self._limits.threads:
                        pending = self._wait(target, pending)
                while pending:
                    pending = self._wait(target, pending)
            except BaseException:
                # A thread that waits for the daemon waits no more.
                pool.shutdown(wait=False, cancel_futures=True)
                target.abandon()
                raise

    def _wait(self, target: targets.Target,
              pending: set[concurrent.futures.Future]
              ) -> set[concurrent.futures.Future]:
        """Return what is pending after at least one has been done."""
        while True:
            done, left = concurrent.futures.wait(
                pending, 0.5, concurrent.futures.FIRST_COMPLETED)
            if self._over():
                for future in pending:
                    future.cancel()
            for future in done:
                if not future.cancelled():
                    self._done += future.result()
            self._tell(target)
            if done:
                return left

    def _over(self) -> bool:
        """Return whether nothing more is to be begun.

        :raises Aborted:
        """
        path = self._disk.image.path
        if self._aborted.is_set():
            raise errors.Aborted(path=path)
        if self._stopped is not None:
            return True
        seconds = time.monotonic() - self._begun
        file_system = os.statvfs(os.path.dirname(path) or '.')
        free = file_system.f_bavail * file_system.f_frsize
        if self._finishing.is_set() or seconds > self._limits.seconds:
            self._stopped = errors.TimedOut(path=path, seconds=seconds)
        elif free < self._limits.reserve:
            self._stopped = errors.NoSpace(
                path=path, reserve=self._limits.reserve, free=free)
        else:
            return False
        self._fetcher.stop()
        return True

    def _tell(self, target: targets.Target) -> None:
        if self._report is not None:
            self._report(Progress(self._done, self._total,
                                  target.proven_count, target.sources()))
