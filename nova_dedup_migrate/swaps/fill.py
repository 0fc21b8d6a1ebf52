# SPDX-License-Identifier: Apache-2.0
"""Fills a new volume from a backup, for the mirror that follows.

::

    blocks not written since the watch began: their SHA-256, as the backup
        has them, are the manifest
    some of them are read from the volume and compared
    claim: the next mirror job copies everything, if it is not armed by then
    each is written to the new volume, read back and compared: proven
    arm: the mirror job copies what is written or not proven

A backup can differ from the volume although nothing was written since it
began: what made it may have read from a cache that was outdated.  So all that
is to be filled is compared with the volume, unless the operator trusts the
backups: then only samples are read.  Nothing is cleared in the watch, so
whatever the guest writes meanwhile is copied by the mirror.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import hashlib
import io
import itertools
import random
import time

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import disk_export
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import libnbd
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.sources import backup as backup_source
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import watches

#: Blocks of the volume that are compared if not all of them are.
SAMPLES = 64
#: Blocks that may differ before the guest's writes are read again.
_DIFFERENT = 1024
#: Blocks that are read at once: each read waits for the storage.
_AT_ONCE = 32


@dataclasses.dataclass(frozen=True)
class Filled:
    """What a fill did, in bytes.

    :ivar size: of the volume
    :ivar proven: of the new volume, what the mirror need not copy
    :ivar fetched: that came from the backup
    :ivar sampled: that were read from the volume
    :ivar zero: of proven, what is zeros
    """

    size: int
    proven: int
    fetched: int
    sampled: int
    seconds: float
    zero: int = 0


def fill(guest: hypervisor.Guest, record: watches.Record,
         source: backup_source.BackupSource, backup_id: str,
         image: writer.Image, journal: str,
         limits: rebuild.Limits | None = None,
         program: str = 'qemu-storage-daemon', everything: bool = True
         ) -> Filled:
    """Fill an image and arm the disk for the mirror into it.

    :param record: of the disk's watch
    :param source: with the backup, is closed
    :param image: the new volume
    :param journal: path for rebuild's journal, which is made
    :param everything: compare all blocks with the volume, not samples
    :raises SwapError: nothing is armed
    :raises StorageError: likewise
    :raises HypervisorError: likewise
    """
    if libnbd.nbd is None:
        raise errors.NotFillable(
            reason='python3-libnbd is not installed on this host')
    watch = watches.of(guest, record.token)
    if watch is None:
        raise errors.NotFillable(
            reason='QEMU has not recorded all writes to the volume')
    if watch.granularity % blocks.BLOCK:
        raise errors.NotFillable(reason='QEMU records writes in granules of '
                                 '%d bytes' % watch.granularity)
    clean = _clean(guest, watch, source)
    limits = limits or rebuild.Limits()
    sampled = _compare(guest, watch, source, record, backup_id,
                       _pieces(clean, everything), limits.seconds)
    # From now on somebody writes to the new volume.
    guest.claim_disk(watch.token)
    build = rebuild.Rebuild(
        rebuild.Disk(image, watch.size, journal,
                     hashlib.sha256(watch.token.encode()).digest(),
                     watch.granularity),
        [source], limits, program=program)
    built = build.run(lambda extents: _Manifest(
        _manifest(watch.size, source, clean)).read)
    built.identity.check(image.path)
    # Only a replica has none.
    assert built.canary is not None
    armed = guest.arm_disk(watch.token, bytes(built.proven),
                           built.canary.offset, built.canary.data)
    return Filled(watch.size, armed.proven, source.fetched, sampled,
                  built.seconds, built.sources.get('zero', 0))


def _clean(guest: hypervisor.Guest, watch: watching.DiskWatch,
           source: backup_source.BackupSource) -> bitmap.Bitmap:
    """Return the blocks that are as the backup has them."""
    dirty = bitmap.Bitmap(watch.granules, guest.dirty_granules(watch))
    clean = bitmap.Bitmap(blocks.count(watch.size))
    # A last block that is shorter in one of them has another SHA-256.
    whole = min(watch.size, source.size)
    if source.size != watch.size:
        whole -= whole % blocks.BLOCK
    if whole:
        clean.set(0, blocks.count(whole))
    for offset, length in dirty.extents(watch.granularity, watch.size):
        clean.clear(offset // blocks.BLOCK, blocks.count(length))
    return clean


def _pieces(clean: bitmap.Bitmap, everything: bool
            ) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of the blocks to compare, ascending."""
    if everything:
        for first, count in clean.runs():
            for at in range(first, first + count, _AT_ONCE):
                yield at, min(_AT_ONCE, first + count - at)
        return
    numbers = [number for first, count in clean.runs()
               for number in random.sample(
                   range(first, first + count),
                   min(count, max(1, SAMPLES * count // clean.size)))]
    for number in sorted(random.sample(numbers, min(len(numbers), SAMPLES))):
        yield number, 1


def _compare(guest: hypervisor.Guest, watch: watching.DiskWatch,
             source: backup_source.BackupSource, record: watches.Record,
             backup_id: str, pieces: Iterable[tuple[int, int]],
             seconds: float) -> int:
    """Compare blocks of the volume; return how many bytes.

    :param pieces: (first, count) of blocks
    :param seconds: that it may take
    :raises BackupDiffers:
    :raises NotFillable:
    """
    wrong: list[int] = []
    done, end = 0, time.monotonic() + seconds
    with guest.exported_disk(watch.node_name) as path:
        disk = libnbd.nbd.NBD()
        disk.set_export_name(disk_export.NAME)
        disk.connect_unix(path)
        try:
            for first, count in pieces:
                if time.monotonic() > end:
                    raise errors.NotFillable(
                        reason='comparing the volume with its backup took '
                        'longer than %d seconds' % seconds)
                offset = first * blocks.BLOCK
                data = disk.pread(min(count * blocks.BLOCK,
                                      watch.size - offset), offset)
                done += len(data)
                wrong += [
                    first + at for at in range(count)
                    if blocks.digest(data[at * blocks.BLOCK:
                                          (at + 1) * blocks.BLOCK])
                    != source.digest(first + at)]
                if len(wrong) >= _DIFFERENT:
                    _judge(guest, watch, source, record, backup_id, wrong)
                    wrong.clear()
        except libnbd.nbd.Error as error:
            raise errors.NotFillable(
                reason='the volume cannot be read: %s' % error) from error
        finally:
            disk.shutdown()
    if not done:
        raise errors.NotFillable(reason='all of the volume has been written '
                                 'since the backup')
    if wrong:
        _judge(guest, watch, source, record, backup_id, wrong)
    return done


def _judge(guest: hypervisor.Guest, watch: watching.DiskWatch,
           source: backup_source.BackupSource, record: watches.Record,
           backup_id: str, wrong: list[int]) -> None:
    """Check that the guest has written to all blocks that differ.

    :raises BackupDiffers:
    """
    still = _clean(guest, watch, source)
    for number in wrong:
        if still[number]:
            raise errors.BackupDiffers(
                backup_id=backup_id, volume_id=record.volume_id,
                offset=number * blocks.BLOCK)


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
