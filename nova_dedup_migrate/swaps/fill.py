# SPDX-License-Identifier: Apache-2.0
"""Fills a new volume from a backup, for the mirror that follows.

::

    the reader of the volume has ended, and nobody begins another
    blocks whose bit is clear and whose fingerprint is that of the backup:
        their SHA-256, as the backup has them, are the manifest
    the new volume is opened; if it cannot be, the mirror is an ordinary one
    claim: the next mirror job copies everything, if it is not armed by then
    each is written to the new volume, read back and compared: proven
    arm: the mirror job copies what is written or not proven

Nothing of the volume is read.  Nothing is cleared in the watch any more, so
whatever the guest writes meanwhile is copied by the mirror.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import hashlib
import io
import itertools

import numpy

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import libnbd
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import volume_writer
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.sources import backup as backup_source
from nova_dedup_migrate.storage.sources import base
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import fingerprints


@dataclasses.dataclass(frozen=True)
class Filled:
    """What a fill did, in bytes.

    :ivar size: of the volume
    :ivar proven: of the new volume, what the mirror need not copy
    :ivar fetched: that came from the backup
    :ivar different: that are known to be other ones than in the backup
    :ivar unknown: that have not been read since they were written
    :ivar zero: of proven, what is zeros
    :ivar agents: of proven, what other sources had than the backup
    :ivar stopped: in words, why it ended early; '' if it did not
    """

    size: int
    proven: int
    fetched: int
    different: int
    unknown: int
    seconds: float
    zero: int = 0
    agents: int = 0
    stopped: str = ''


@dataclasses.dataclass(frozen=True)
class Same:
    """Which blocks of a volume are as a backup has them.

    :ivar blocks: these
    :ivar different: how many are known to differ
    :ivar unknown: how many are not known
    """

    blocks: bitmap.Bitmap
    different: int
    unknown: int


def fill(guest: hypervisor.Guest, watch: watching.DiskWatch,
         known: fingerprints.Fingerprints,
         source: backup_source.BackupSource, image: writer.Image,
         journal: str, limits: rebuild.Limits | None = None,
         program: str = 'qemu-system-x86_64',
         others: Sequence[base.Source] = (),
         progress: Callable[[rebuild.Progress], None] | None = None
         ) -> Filled:
    """Fill an image and arm the disk for the mirror into it.

    :param watch: of the disk; nobody else clears any of it
    :param known: of this watch
    :param source: with the backup, is closed
    :param image: the new volume
    :param journal: path for rebuild's journal, which is made
    :param program: path of a QEMU
    :param others: that may have some of the backup's blocks, too; closed
    :param progress: as rebuild.Rebuild has it; what it raises ends the fill,
        and nothing is armed
    :raises SwapError: nothing is armed
    :raises StorageError: likewise
    :raises HypervisorError: likewise
    """
    if libnbd.nbd is None:
        raise errors.NotFillable(
            reason='python3-libnbd is not installed on this host')
    known.sync()
    same = compare(guest, watch, known, source)
    if not same.blocks.count():
        raise errors.NotFillable(
            reason='no block is known to be as in the backup: %d differ, and '
            '%d have not been read or were written since' % (
                same.different, same.unknown))

    def begin(_extents: list[tuple[int, int]]) -> Callable[[int], bytes]:
        # The new volume is open, and from now on it is written to.
        guest.claim_disk(watch.token)
        return _Manifest(_manifest(watch.size, source, same.blocks)).read

    build = rebuild.Rebuild(
        rebuild.Disk(image, watch.size, journal,
                     hashlib.sha256(watch.token.encode()).digest(),
                     watch.granularity),
        [source, *others], limits, progress, program=program,
        opener=volume_writer.VolumeWriter)
    built = build.run(begin)
    built.identity.check(image.path)
    # Only a replica has none.
    assert built.canary is not None
    armed = guest.arm_disk(watch.token, bytes(built.proven),
                           built.canary.offset, built.canary.data)
    return Filled(watch.size, armed.proven, source.fetched,
                  same.different * blocks.BLOCK, same.unknown * blocks.BLOCK,
                  built.seconds, built.sources.get('zero', 0),
                  sum(built.sources.get(name, 0)
                      for name in {each.name for each in others}),
                  built.stopped)


def compare(guest: hypervisor.Guest, watch: watching.DiskWatch,
            known: fingerprints.Fingerprints,
            source: backup_source.BackupSource) -> Same:
    """Return which blocks are as a backup has them.

    :raises NotFillable: what is known of the volume is damaged
    :raises HypervisorError: QEMU does not answer
    """
    total = blocks.count(watch.size)
    dirty = bitmap.Bitmap(watch.granules, guest.dirty_granules(watch))
    clean = bitmap.Bitmap(total)
    clean.set(0, total)
    for offset, length in dirty.extents(watch.granularity, watch.size):
        clean.clear(offset // blocks.BLOCK, blocks.count(length))
    equal = bytearray()
    found = 0
    for first, entries in known.pieces():
        usable = clean.bits(first, first + len(entries)).astype(bool)
        found += int((usable & entries.any(axis=1)).sum())
        equal += numpy.packbits(usable & fingerprints.equal(
            entries, source.digests(first, len(entries))),
            bitorder='little').tobytes()
    same = bitmap.Bitmap(total, bytes(equal))
    return Same(same, found - same.count(), total - found)


def _manifest(size: int, source: backup_source.BackupSource,
              clean: bitmap.Bitmap) -> Iterator[bytes]:
    """Yield the manifest of the blocks that the backup has.

    Zeros are named as such, so that they stay holes in the new volume.
    """
    encode = manifest.Writer(size)
    yield encode.header()
    for first, count in clean.runs():
        for start in range(first, first + count, manifest.MAX_DIGESTS):
            some = [source.digest(number) for number in range(
                start, min(start + manifest.MAX_DIGESTS, first + count))]
            at = start
            for zero, same in itertools.groupby(
                    some, blocks.ZERO_DIGEST.__eq__):
                digests = list(same)
                yield encode.record(
                    manifest.Record(manifest.ZERO, at, len(digests)) if zero
                    else manifest.Record(manifest.DIGESTS, at, len(digests),
                                         b''.join(digests)))
                at += len(digests)
    yield encode.end()


class _Manifest(io.RawIOBase):
    """Parts, to be read by length."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        super().__init__()
        self._parts = parts
        self._left = b''

    def read(self, size: int = -1) -> bytes:
        while len(self._left) < size:
            part = next(self._parts, b'')
            if not part:
                break
            self._left += part
        data, self._left = self._left[:size], self._left[size:]
        return data
