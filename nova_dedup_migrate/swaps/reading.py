# SPDX-License-Identifier: Apache-2.0
"""Reads the volumes of a host, slowly, to know what their blocks are.

One volume is read at a time: what was written to since it was read last, and
at first all of it.  A pass over a volume takes many turns, so that each one
has its own soon, and a turn takes many slices.  QEMU's only NBD server is in
use during a slice, so that is short, and it ends early if somebody else needs
the instance (turns).

A volume rests for longer than a pass has taken: blocks that are written to
all the time are not read all the time.  What the rest of them is worth is
decided when the volume moves; a pass that was not ended is worth what it has
read.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import logging
import threading
import time
import typing

from nova_dedup_migrate import errors as base_errors
from nova_dedup_migrate import native
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import disk_export
from nova_dedup_migrate.hypervisor import latency
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import extents
from nova_dedup_migrate.storage import libnbd
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.storage import pacing
from nova_dedup_migrate.storage import scan
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import fingerprints
from nova_dedup_migrate.swaps import turns
from nova_dedup_migrate.swaps import watches

LOG = logging.getLogger(__name__)

#: Bytes that are cleared and read in one step: a multiple of all
#: granularities of QEMU.
STEP = 1 << 20
#: Seconds of a turn, of a slice, and from one slice to the next.
TURN, SLICE, GAP = 60.0, 2.0, 0.5
#: Share of a volume that has to be written to before it is read again.
WORTH = 1 / 128
#: How much longer a volume rests than it was read for.
REST = 4
#: Bytes of a hole that take as long as one that is read.
_HOLE = 16


@dataclasses.dataclass
class _Pass:
    """How far a volume is read.

    :ivar at: offset in bytes up to which it is, 0: the pass has not begun
    :ivar due: when the next turn may be
    """

    token: str
    at: int = 0
    begun: float = 0.0
    due: float = 0.0


class Reader:
    """Reads the volumes that have a record.

    :param records: of the host
    :param turns: who else needs the instances
    :param guest: returns the guest of an instance; raises LookupError if it
        is not to be read now
    :param rate: returns the bytes a second that may be read
    :param stopped: ends all
    """

    def __init__(self, records: watches.Records, turns: turns.Turns,
                 guest: Callable[[str], hypervisor.Guest],
                 rate: Callable[[], float], stopped: threading.Event
                 ) -> None:
        self._records = records
        self._turns = turns
        self._guest = guest
        self._rate = rate
        self._stopped = stopped
        self._passes: dict[tuple[str, str], _Pass] = {}

    def work(self, until: float) -> None:
        """Read until a time, or until nothing is left to read.

        :param until: of time.monotonic()
        """
        if libnbd.nbd is None:
            LOG.warning('Volumes are not read, and none will be filled from '
                        'a backup: python3-libnbd is not installed')
            return
        names = set(self._records.names())
        self._passes = {name: one for name, one in self._passes.items()
                        if name in names}
        # A volume that fails, or that has nothing to be read, is not looked
        # at again before the next call.
        left = sorted(names)
        while left and not self._stopped.is_set():
            for name in left[:]:
                if self._stopped.is_set() or time.monotonic() >= until:
                    return
                if not self._try(name, until):
                    left.remove(name)

    def _try(self, name: tuple[str, str], until: float) -> bool:
        """Give a volume its turn; return whether it needs another."""
        try:
            return self._turn(name, until)
        except LookupError as error:
            LOG.debug('Disk %s of instance %s is not read now: %s', name[1],
                      name[0], error)
        except errors.NotKept as error:
            # What was emptied may come back, so nothing of it is used.
            self._records.remove(*name)
            LOG.warning('What is known of disk %s of instance %s did not '
                        'reach the disk: %s. It is read anew. Check the disk '
                        'of volumes_path', name[1], name[0], error)
        except (base_errors.DedupMigrateError, OSError) as error:
            LOG.info('Disk %s of instance %s is not read for now: %s',
                     name[1], name[0], error)
        except Exception:
            LOG.exception('Disk %s of instance %s is not read for now',
                          name[1], name[0])
        return False

    def _turn(self, name: tuple[str, str], until: float) -> bool:
        record = self._records.load(*name)
        if record is None:
            return False
        one = self._passes.get(name)
        if one is None or one.token != record.token:
            one = self._passes[name] = _Pass(record.token)
        now = time.monotonic()
        if now < one.due:
            return False
        guest = self._guest(record.instance)
        watch = watches.of(guest, record.token)
        if watch is None or (not one.at
                             and watch.dirty <= watch.size * WORTH):
            return False
        if not one.at:
            one.begun = now
        steps = _steps(bitmap.Bitmap(
            watch.granules, guest.dirty_granules(watch)), watch, one.at)
        pace = pacing.Pacer(latency.Latency(guest).requests, self._rate(),
                            self._stopped)
        end = min(now + TURN, until)
        while time.monotonic() < end and not self._stopped.is_set():
            with self._turns.reading(record.instance) as mine:
                # Who has filled a volume has removed its record first.
                if not mine or self._records.load(*name) != record:
                    return False
                ended = self._slice(guest, watch, record, steps, pace, one)
            if ended:
                now = time.monotonic()
                one.at, one.due = 0, now + REST * (now - one.begun)
                return False
            self._stopped.wait(GAP)
        return True

    def _slice(self, guest: hypervisor.Guest, watch: watching.DiskWatch,
               record: watches.Record, steps: Iterator[tuple[int, int]],
               pace: pacing.Pacer, one: _Pass) -> bool:
        """Read for SLICE seconds; return whether no step is left."""
        end = time.monotonic() + SLICE
        with contextlib.ExitStack() as stack:
            known = fingerprints.Fingerprints(self._records.fingerprints(
                record.instance, record.disk), watch)
            stack.callback(known.close)
            path = stack.enter_context(
                guest.exported_disk(watch.node_name, brief=True))
            disk = stack.enter_context(connected(path))
            for offset, length in steps:
                count = read(guest, watch, disk, known, offset, length)
                one.at = offset + length
                pace(count + (length - count) // _HOLE)
                if (time.monotonic() >= end or self._stopped.is_set()
                        or self._turns.is_wanted(record.instance)):
                    break
            else:
                native.call(known.sync)
                return True
            native.call(known.sync)
        return False


def read(guest: hypervisor.Guest, watch: watching.DiskWatch,
         disk: typing.Any, known: fingerprints.Fingerprints, offset: int,
         length: int) -> int:
    """Read a range and note what it holds; return the bytes read.

    The order decides; see watches.  Entries of what cannot be read stay
    empty.

    :param disk: nbd.NBD of connected()
    :raises HypervisorError: the range was not cleared
    :raises NotFillable: the connection is lost
    :raises OSError: the file cannot be written
    """
    known.forget(offset, length)
    guest.clear_disk(watch.token, offset, length)
    records, count = native.call(_read, disk, offset, length)
    for one in records:
        if one.kind == manifest.DIGESTS:
            known.note(one.first, one.digests)
        elif one.kind == manifest.ZERO:
            known.note(one.first, _zeros(one, watch.size))
    return count


def _read(disk: typing.Any, offset: int, length: int
          ) -> tuple[list[manifest.Record], int]:
    """Return the records of a range, and how much of it was read."""
    scanned = scan.Scanned()
    try:
        return list(scan.records(disk, offset, length, False,
                                 scanned)), scanned.read
    except libnbd.nbd.Error as error:
        raise _lost(error) from error


def _zeros(one: manifest.Record, size: int) -> bytes:
    """Return the SHA-256 of blocks of zeros; the last one may be short."""
    last = blocks.length(one.first + one.count - 1, size)
    return (blocks.ZERO_DIGEST * (one.count - 1)
            + blocks.digest(bytes(last)))


def _steps(dirty: bitmap.Bitmap, watch: watching.DiskWatch, begin: int
           ) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of steps of what is dirty, from begin on."""
    for offset, length in dirty.extents(watch.granularity, watch.size):
        end = offset + length
        for start in range(max(offset, begin), end, STEP):
            yield start, min(STEP, end - start)


@contextlib.contextmanager
def connected(path: str) -> Iterator[typing.Any]:
    """Give an nbd.NBD of an exported disk.

    :param path: of the socket
    :raises NotFillable: it cannot be connected to
    """
    disk = native.call(_connect, path)
    try:
        yield disk
    finally:
        with contextlib.suppress(libnbd.nbd.Error):
            native.call(disk.shutdown)


def _connect(path: str) -> typing.Any:
    disk = extents.connection()
    disk.set_export_name(disk_export.NAME)
    try:
        disk.connect_unix(path)
    except libnbd.nbd.Error as error:
        raise _lost(error) from error
    return disk


def _lost(error: Exception) -> errors.NotFillable:
    return errors.NotFillable(
        reason='the volume cannot be read: %s' % error)
