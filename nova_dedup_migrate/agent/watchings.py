# SPDX-License-Identifier: Apache-2.0
"""Disks of guests of this host that are read for their destinations.

::

    nova-compute          this agent                       destination
      watch_disk -------> QEMU records writes; a sample
                          is read
      (fill_disk) ------------------------------------------>
                          manifest: clear, read  <----------  data channel
                          proven, canary         <----------
      arm_disk ---------> the next mirror begins with the rest
      libvirt migrates
      forget_disks -----> QEMU forgets

A disk that is not to be built after all is released: its mirror is then an
ordinary one.  As soon as its manifest was read that is not possible.

The watch of a replica goes on between two refreshes.  Its token is in QEMU
only, so it also does if this agent is restarted meanwhile, and does not if
QEMU is.  Mirrors that nothing has prepared ignore it, a live snapshot's for
example.  The migration to the replica's host claims it.

A watch has one reader: a clearing by one that was given up, after the next
has read the range, would lose the writes between them.

One disk of a guest is read at a time: QEMU has one NBD server.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import hashlib
import logging
import random
import threading

from nova_dedup_migrate.agent import disk_channel
from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import exports
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import disk_export
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import latency
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import canary as canaries
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage import extents
from nova_dedup_migrate.storage import order
from nova_dedup_migrate.storage import pacing
from nova_dedup_migrate.storage import scan
from nova_dedup_migrate.storage.channel import services
from nova_dedup_migrate.storage.libnbd import nbd

LOG = logging.getLogger(__name__)

#: Disks that are watched.
MAX_WATCHED = 256
#: Blocks that are looked at to estimate how much data a disk has.
_LOOKS = 512


class Watchings:
    """All of them.

    :param guest: returns the hypervisor's Guest of an instance
    :param channel: of this host
    :param rate: bytes a second that a disk is read at most
    """

    def __init__(self, guest: Callable[[str], hypervisor.Guest],
                 channel: disk_channel.DiskChannel,
                 rate: float = float('inf')) -> None:
        self._guest = guest
        self._channel = channel
        self._rate = rate
        self._guard = threading.Lock()
        self._watched: dict[tuple[str, str], Watching] = {}
        #: that libvirt was not there to have QEMU forget
        self._left: list[Watching] = []

    def watch(self, request: watch_objects.DedupWatchRequest
              ) -> watch_objects.DedupWatchReply:
        """Watch a disk and read a sample of it.

        :raises WatchRefused:
        """
        key = request.migration_uuid, request.target
        with self._guard:
            if len(self._watched) >= MAX_WATCHED:
                raise errors.WatchRefused(
                    target=request.target, instance=request.instance_uuid,
                    reason='%d disks are watched' % MAX_WATCHED)
        if nbd is None:
            raise errors.WatchRefused(
                target=request.target, instance=request.instance_uuid,
                reason='the Python module of libnbd is missing: install '
                'python3-libnbd')
        with _refusing(request.target, request.instance_uuid):
            guest = self._guest(request.instance_uuid)
            if request.replica:
                self._give_way(key, guest, request)
            found = Watching(guest, request.target, request.above_base,
                             self._rate, request.resume, request.replica)
            try:
                # What a replica has of a disk needs no estimate.
                reply = found.reply(*(
                    () if request.replica and found.resumed
                    else found.sample()))
            except BaseException:
                self._end(found)
                raise
        for before in self._replace(key, found):
            before.close()
        self._channel.add_disk(*key, found.service())
        return reply

    def _give_way(self, key: tuple[str, str], guest: hypervisor.Guest,
                  request: watch_objects.DedupWatchRequest) -> None:
        """:raises WatchRefused: somebody else needs the disk's watch"""
        with self._guard:
            taken = any(
                other != key and other[1] == request.target
                and each.guest.name == guest.name
                and (request.resume is not None or not each.replica)
                for other, each in self._watched.items())
        if taken:
            raise errors.WatchRefused(
                target=request.target, instance=request.instance_uuid,
                reason='it is watched for a migration, or for a replica on '
                'another host')

    def _replace(self, key: tuple[str, str], found: Watching
                 ) -> list[Watching]:
        """Keep one; return what there was of the disk.

        Of this or another migration, or of a replica: its watch goes on, and
        the next refresh resumes it.
        """
        with self._guard:
            gone = {
                other: each for other, each in self._watched.items()
                if other == key or (other[1] == key[1] and each.guest.name
                                    == found.guest.name)}
            for other in gone:
                del self._watched[other]
                self._channel.remove_disk(*other)
            self._watched[key] = found
        return list(gone.values())

    def arm(self, migration: str, target: str
            ) -> watch_objects.DedupWatchReply:
        """Arm a disk with what its destination has proven.

        :raises WatchRefused:
        """
        found = self._find(migration, target)
        with _refusing(target, found.guest.name):
            return found.arm()

    def sample(self, migration: str, target: str
               ) -> image_objects.DedupDiskSample:
        """Return the sample that was read when a disk was watched.

        :raises WatchRefused:
        """
        sampled = self._find(migration, target).sampled
        return image_objects.DedupDiskSample(
            digests=[digest for _, digest in sampled],
            offsets=[offset for offset, _ in sampled])

    def _find(self, migration: str, target: str) -> Watching:
        """:raises WatchRefused: the disk is not watched"""
        with self._guard:
            found = self._watched.get((migration, target))
        if found is None:
            raise errors.WatchRefused(
                target=target, instance='migration %s' % migration,
                reason='it is not watched; the agent may have been '
                'restarted')
        return found

    def release(self, migration: str, target: str) -> bool:
        """Forget a disk whose target nobody can have written to.

        :returns: False: its manifest was read, so it remains watched
        """
        with self._guard:
            found = self._watched.get((migration, target))
            if found is None or found.was_read:
                return False
            del self._watched[migration, target]
        self._channel.remove_disk(migration, target)
        self._end(found)
        return True

    def forget(self, migration: str) -> None:
        """Forget the disks of a migration."""
        self._channel.remove_disks(migration)
        with self._guard:
            found = [each for key, each in self._watched.items()
                     if key[0] == migration]
            self._watched = {key: each
                             for key, each in self._watched.items()
                             if key[0] != migration}
        for each in found:
            self._end(each)

    def _end(self, found: Watching) -> None:
        if not found.forget():
            with self._guard:
                # An agent whose libvirt stays away watches nothing new.
                self._left.append(found)

    def settle(self) -> None:
        """Have QEMU forget what it could not while libvirt was away."""
        with self._guard:
            left, self._left = self._left, []
        for each in left:
            self._end(each)

    def stop(self) -> None:
        """Stop reading.

        QEMU goes on to watch: the next mirror has to copy everything into
        a target that has been filled.
        """
        with self._guard:
            found = list(self._watched.values())
        for each in found:
            each.close()


class Watching:
    """One disk.

    :param guest: whose disk it is
    :param target: of the disk, as Guest.disks names it
    :param above_base: whether only the top image is copied
    :param rate: bytes a second that it is read at most
    :param resume: SHA-256 of the token of a watch that goes on if there is
        one; otherwise a new one begins
    :param replica: whether it is for a replica
    :raises HypervisorError: it cannot be watched
    """

    def __init__(self, guest: hypervisor.Guest, target: str,
                 above_base: bool, rate: float, resume: str | None = None,
                 replica: bool = False) -> None:
        self.guest = guest
        self.replica = replica
        try:
            device = guest.disks()[target]
        except KeyError:
            raise hypervisor_errors.OptionError(
                option='target', value=target,
                reason='the guest has no such disk') from None
        before = _resumed(guest, device, resume) if resume else None
        self.resumed = before is not None
        self.watch = _watch(guest, device, before, replica)
        self._export = exports.Export(
            lambda: guest.exported_disk(self.watch.node_name))
        self._above_base = above_base
        self._rate = rate
        self._closed = threading.Event()
        self._clearing = threading.Lock()
        self._scans = 0
        #: (offset, digest in hexadecimal) of the blocks of the sample
        self.sampled: list[tuple[int, str]] = []
        #: whether somebody may fill a target
        self.was_read = False
        self._proven: bitmap.Bitmap | None = None
        self._canary: canaries.Canary | None = None

    def service(self) -> services.DiskService:
        return services.DiskService(
            self.watch.size, self.scan,
            exports.ExportedSource(self._export, self.watch.size),
            self.prove, self.written)

    def sample(self) -> tuple[int, list[str]]:
        """Return the bytes of data, estimated, and digests of some."""
        total = blocks.count(self.watch.size)
        numbers = sorted(random.sample(range(total), min(total, _LOOKS)))
        data = []
        sampled = []
        with self._export.connect() as handle:
            for number in numbers:
                offset = number * blocks.BLOCK
                length = blocks.length(number, self.watch.size)
                if extents.kinds(handle, offset, length,
                                 self._above_base) == [extents.DATA]:
                    data.append((offset, length))
            chosen = random.sample(data, min(len(data),
                                             watch_objects.MAX_SAMPLE))
            for offset, length in sorted(chosen):
                content = handle.pread(length, offset)
                if not blocks.is_zero(content):
                    sampled.append((offset, blocks.digest(content).hex()))
        self.sampled = sampled
        share = len(data) / len(numbers)
        if chosen:
            share *= len(sampled) / len(chosen)
        return int(share * self.watch.size), [
            digest for _, digest in sampled]

    def scan(self, wanted: list[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the manifest of ranges; see storage.scan."""
        with self._clearing:
            self._scans += 1
            number = self._scans

        def clear(offset: int, length: int) -> None:
            with self._clearing:
                if self._closed.is_set() or number != self._scans:
                    raise storage_errors.DiskUnreadable(
                        reason='it is not watched any more, or read by '
                        'another connection')
                self.guest.clear_disk(self.watch.token, offset, length)

        self.was_read = True
        pace = pacing.Pacer(latency.Latency(self.guest).requests,
                            self._rate, self._closed)
        granule = self.watch.granularity // blocks.BLOCK
        with self._export.connect() as handle:
            def filled(offset: int, length: int) -> list[bool]:
                kinds = extents.kinds(handle, offset, length,
                                      self._above_base)
                return [extents.DATA in kinds[at:at + granule]
                        for at in range(0, len(kinds), granule)]

            yield from scan.scan(
                handle, clear, pace, order.hot_last(
                    wanted, self.watch.size, self.watch.granularity, clear,
                    self.written, filled),
                self._above_base, self.watch.granularity)

    def written(self) -> bitmap.Bitmap:
        """Return the granules that the guest has written, or never read.

        A destination that needs them may write to its target next.
        """
        self.was_read = True
        try:
            return bitmap.Bitmap(self.watch.granules,
                                 self.guest.dirty_granules(self.watch))
        except hypervisor_errors.HypervisorError as error:
            raise storage_errors.DiskUnreadable(reason=error) from error

    def prove(self, proven: bitmap.Bitmap, canary: canaries.Canary) -> None:
        """Keep what the destination has proven.

        Nothing is cleared afterwards, also by a reader that was given up.
        """
        with self._clearing:
            self._scans += 1
        if proven.size != self.watch.granules:
            raise storage_errors.DiskUnreadable(
                reason='%d granules are said to be proven of %d'
                % (proven.size, self.watch.granules))
        self._proven, self._canary = proven, canary

    def arm(self) -> watch_objects.DedupWatchReply:
        """Arm the disk, once.

        :raises HypervisorError:
        """
        if self._proven is None or self._canary is None:
            raise hypervisor_errors.OptionError(
                option='disk', value=self.watch.device,
                reason='nothing of it is proven')
        self.watch = self.guest.arm_disk(
            self.watch.token, bytes(self._proven), self._canary.offset,
            self._canary.data)
        return self.reply()

    def reply(self, data: int = 0, sample: list[str] | None = None
              ) -> watch_objects.DedupWatchReply:
        watch = self.watch
        return watch_objects.DedupWatchReply(
            state=watch.state,
            reason=(watch.reason or '')[:objects.MAX_REASON],
            size=watch.size, granularity=watch.granularity,
            watch=_name(watch),
            proven=watch.proven, dirty=watch.dirty, written=watch.written,
            data=data, sample=sample or [])

    def close(self) -> None:
        """Stop reading it; nothing is cleared afterwards."""
        with self._clearing:
            self._closed.set()
        self.guest.close()

    def forget(self) -> bool:
        """Stop reading it; have QEMU forget it, if there is one still.

        :returns: False: libvirt does not answer, so QEMU may still export
            and watch the disk
        """
        with self._clearing:
            self._closed.set()
        try:
            disk_export.stop_left(self.guest)
            self.guest.drop_disk(self.watch.token)
        except (hypervisor_errors.HypervisorUnavailable,
                hypervisor_errors.QmpTimeout) as error:
            LOG.warning('QEMU of guest %s still watches disk %s: %s. It '
                        'forgets the disk when libvirt answers again.',
                        self.guest.name, self.watch.device, error)
            return False
        except hypervisor_errors.HypervisorError as error:
            LOG.debug('The watch of disk %s of guest %s is not there any '
                      'more: %s', self.watch.device, self.guest.name, error)
        self.guest.close()
        return True


def _name(watch: watching.DiskWatch) -> str:
    """Return what names a watch outside of this host."""
    return hashlib.sha256(watch.token.encode()).hexdigest()


def _watch(guest: hypervisor.Guest, device: str,
           before: watching.DiskWatch | None, replica: bool
           ) -> watching.DiskWatch:
    """Have QEMU watch a disk, for a replica or for a migration.

    :param before: the replica's watch that is to go on
    """
    if replica:
        return before or guest.watch_disk(device, recorder=watching.REPLICA)
    if before:
        # Not later: the destination may fill its file as soon as it knows.
        return guest.claim_disk(before.token)
    return guest.watch_disk(device)


def _resumed(guest: hypervisor.Guest, device: str, name: str
             ) -> watching.DiskWatch | None:
    """Return a replica's watch that no migration has claimed."""
    for each in guest.disk_watches():
        if (each.device == device and each.state == watching.WATCHING
                and each.recorder == watching.REPLICA
                and _name(each) == name):
            return each
    return None


@contextlib.contextmanager
def _refusing(target: str, instance: str) -> Iterator[None]:
    """Make what can go wrong an answer that nova-compute understands."""
    try:
        yield
    except (hypervisor_errors.HypervisorError, storage_errors.StorageError,
            nbd.Error) as error:
        raise errors.WatchRefused(target=target, instance=instance,
                                  reason=error) from error
