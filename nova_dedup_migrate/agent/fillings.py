# SPDX-License-Identifier: Apache-2.0
"""Disks that this host builds as the destination of migrations."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import functools
import hashlib
import logging
import os
import threading
import time

from nova_dedup_migrate import errors as base_errors
from nova_dedup_migrate.agent import disk_channel
from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import stored_images
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage import identity
from nova_dedup_migrate.storage import image_store
from nova_dedup_migrate.storage import journal as journals
from nova_dedup_migrate.storage import layers
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.channel import client
from nova_dedup_migrate.storage.channel import errors as channel_errors
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.storage.libnbd import nbd
from nova_dedup_migrate.storage.sources import base as sources
from nova_dedup_migrate.storage.sources import image
from nova_dedup_migrate.storage.sources import neighbour
from nova_dedup_migrate.storage.sources import source
from nova_dedup_migrate.storage.sources import zero

LOG = logging.getLogger(__name__)

#: Disks at a time, and disks that are remembered.
MAX_RUNNING = 16
MAX_KNOWN = 1024
#: Runs for one disk, if the connection to the source breaks.
ATTEMPTS = 3
#: End of the name of a journal that a replica had.
TAKEN = '.taken'
#: Seconds after which a journal that nobody has used is removed.
JOURNAL_AGE = 24 * 3600.0
#: What a replica or a cached image costs to read: a file of this host.
_FILE = sources.Cost(rate=500e6, latency=0.002)


class Fillings:
    """All of them.

    :param channel: of this host
    :param index: of this host
    :param api: of the agents
    :param roots: directories that images may be in
    :param directory: of the journals; is made if there is none
    :param reserve: bytes that stay free in the file system of a disk
    :param program: path of qemu-storage-daemon
    :param cached: returns the path of a cached image, see owners.Owners
    :param replicas: directory of the replicas
    :param tls: how the image store is checked
    """

    def __init__(self, channel: disk_channel.DiskChannel,
                 index: store.Index, api: rpc_api.AgentAPI,
                 roots: Sequence[str], directory: str,
                 reserve: int, program: str,
                 cached: Callable[[str], str | None],
                 replicas: str,
                 tls: image_store.Tls | None = None) -> None:
        self.channel = channel
        self.index = index
        self.api = api
        self.roots = tuple(roots)
        self.reserve = reserve
        self.program = program
        self.cached = cached
        self.stored = stored_images.StoredImages(
            tls or image_store.Tls(), cached)
        #: path of a replica -> the file as it was left
        self.left: dict[str, identity.Identity] = {}
        self._replicas = replicas
        self._directory = directory
        self._guard = threading.Lock()
        self._known: dict[tuple[str, str], _Filling] = {}

    def start(self) -> None:
        """Make the directory; remove journals that nobody came back for."""
        os.makedirs(self._directory, 0o700, exist_ok=True)
        for entry in os.scandir(self._directory):
            if time.time() - entry.stat().st_mtime > JOURNAL_AGE:
                os.unlink(entry.path)

    def stop(self) -> None:
        """Abort what is under way; it can be resumed."""
        with self._guard:
            fillings = list(self._known.values())
        for filling in fillings:
            filling.abort()
        for filling in fillings:
            filling.wait(None)

    def replica(self, instance: str, target: str) -> str:
        """Return the path of the replica of a disk."""
        return os.path.join(self._replicas, '%s.%s' % (instance, target))

    def hand_over(self, preparation: str, target: str, migration: str
                  ) -> bool:
        """Let a migration begin with the journal of a replica.

        The replica has none any more, also after a crash of the host: the
        migration clears bits of the same watch.

        :returns: whether there was one
        """
        self._halt(preparation)
        try:
            os.rename(self._journal((preparation, target)),
                      self._journal((migration, target)) + TAKEN)
        except FileNotFoundError:
            return False
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        return True

    def fill(self, ctxt: object, request: disk_objects.DedupFillRequest,
             replica: bool = False,
             store: image_objects.DedupImageStore | None = None
             ) -> disk_objects.DedupFillingReply:
        """Begin to build a disk, or return how far it is.

        :param replica: whether it is a replica: it is brought up to date
            if it is done, and keeps its journal
        :param store: images of the image store that may be read
        :raises FillRefused:
        """
        key = (request.migration_uuid, request.target)
        if nbd is None:
            raise errors.FillRefused(
                target=request.target, instance=request.instance_uuid,
                reason='python3-libnbd is not installed on this host')
        with self._guard:
            filling = self._known.get(key)
            if filling is None or filling.failed or (
                    replica and not filling.running):
                self._check_room(request)
                filling = _Filling(self, ctxt, request, self._journal(key),
                                   replica, store)
                self._known[key] = filling
                filling.start()
        return filling.reply(0.0)

    def _check_room(self, request: disk_objects.DedupFillRequest) -> None:
        running = sum(each.running for each in self._known.values())
        if running >= MAX_RUNNING:
            raise errors.FillRefused(
                target=request.target, instance=request.instance_uuid,
                reason='%d disks are being built; try again later'
                % running)
        for key, known in list(self._known.items()):
            if len(self._known) < MAX_KNOWN:
                break
            if not known.running:
                del self._known[key]

    def _journal(self, key: tuple[str, str]) -> str:
        migration, target = key
        return os.path.join(self._directory, '%s.%s' % (
            migration, hashlib.sha256(target.encode()).hexdigest()[:16]))

    def filling(self, request: disk_objects.DedupFillingRequest
                ) -> disk_objects.DedupFillingReply:
        """Return how far a disk is."""
        with self._guard:
            filling = self._known.get((request.migration_uuid,
                                       request.target))
        if filling is None:
            return disk_objects.DedupFillingReply(
                state='unknown', reason='the agent of this host does not '
                'build disk %s of migration %s; it may have been restarted'
                % (request.target, request.migration_uuid))
        return filling.reply(request.wait)

    def abort(self, migration: str) -> None:
        """Stop the work for a migration and forget it."""
        self._halt(migration)
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(self._directory):
                if name.partition('.')[0] == migration:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(self._directory, name))

    def _halt(self, migration: str) -> None:
        """Stop the work for a migration; its journals stay."""
        with self._guard:
            fillings = [filling for key, filling in self._known.items()
                        if key[0] == migration]
            self._known = {key: filling
                           for key, filling in self._known.items()
                           if key[0] != migration}
        for filling in fillings:
            filling.abort()
            filling.wait(None)


class _Filling:
    """One disk, in a thread of its own."""

    def __init__(self, owner: Fillings, ctxt: object,
                 request: disk_objects.DedupFillRequest, journal: str,
                 replica: bool,
                 store: image_objects.DedupImageStore | None) -> None:
        self._owner = owner
        self._ctxt = ctxt
        self._request = request
        self._journal = journal
        self._replica = replica
        self._store = store
        self._ended = threading.Event()
        self._aborted = threading.Event()
        self._run: rebuild.Rebuild | None = None
        self._channel: client.Channel | None = None
        self._progress = rebuild.Progress(0, 0, 0, {})
        self._rebuilt: rebuild.Rebuilt | None = None
        self._failure = ''
        self._begun = time.monotonic()
        self._seconds = 0.0

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def failed(self) -> bool:
        return bool(self._failure)

    def start(self) -> None:
        threading.Thread(target=self._work, name='dedup-fill',
                         daemon=True).start()

    def abort(self) -> None:
        self._aborted.set()
        run, channel = self._run, self._channel
        if run is not None:
            run.abort()
        if channel is not None:
            # It may wait for the manifest.
            channel.close()

    def wait(self, seconds: float | None) -> None:
        self._ended.wait(seconds)

    def reply(self, wait: float) -> disk_objects.DedupFillingReply:
        """Return how far it is, after wait seconds or at its end."""
        self.wait(wait)
        state, reason = 'running', ''
        if self._ended.is_set():
            state, reason = ('failed', self._failure) if (
                self._failure) else ('done', '')
            if self._rebuilt is not None and not self._failure:
                try:
                    self._rebuilt.identity.check(self._request.image.path)
                except storage_errors.TargetReplaced as error:
                    state, reason = 'failed', str(error)
        progress = self._progress
        return disk_objects.DedupFillingReply(
            state=state, reason=reason[:objects.MAX_REASON],
            done=progress.done, total=progress.total,
            sources=[disk_objects.DedupSourceBytes(name=name, bytes=count)
                     for name, count in sorted(progress.sources.items())],
            seconds=(self._seconds if self._ended.is_set()
                     else time.monotonic() - self._begun))

    def _work(self) -> None:
        request = self._request
        try:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    self._attempt()
                    break
                except (channel_errors.ChannelBroken,
                        rpc_errors.AgentUnavailable) as error:
                    if attempt == ATTEMPTS or self._aborted.is_set():
                        raise
                    LOG.warning('Disk %s of instance %s: %s. Attempt %d of '
                                '%d follows.', request.target,
                                request.instance_uuid, error, attempt + 1,
                                ATTEMPTS)
        except base_errors.DedupMigrateError as error:
            self._failure = str(error)
            LOG.warning('Disk %s of instance %s is not built here: %s',
                        request.target, request.instance_uuid, error)
        except Exception as error:
            self._failure = '%s: %s' % (type(error).__name__, error)
            LOG.exception('Disk %s of instance %s is not built here',
                          request.target, request.instance_uuid)
        finally:
            if not os.path.exists(request.image.path) or not (
                    self._failure or self._replica):
                # Nothing is to be resumed.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._journal)
            # The token is needed no longer.
            self._store = None
            self._seconds = time.monotonic() - self._begun
            self._ended.set()

    def _attempt(self) -> None:
        request, owner = self._request, self._owner
        with contextlib.ExitStack() as stack:
            channel = self._connect(request.source, request.target)
            stack.callback(channel.close)
            self._channel = channel
            written = None
            if not self._replica:
                # Of a file with this name that a migration before has built:
                # its entries would hide those of files that are there.
                owner.index.remove(request.image.path)
            self._adopt()
            if os.path.exists(self._journal):
                # The source takes it for a beginning of writing, too.
                written = channel.written(-(-request.size
                                            // request.granularity))
            run = rebuild.Rebuild(
                self._disk(), self._sources(),
                rebuild.Limits(seconds=request.seconds,
                               reserve=owner.reserve),
                self._note, self._index, request.reuse, owner.program,
                owner.roots, self._replica,
                owner.left.pop(request.image.path, None))
            self._run = run
            if self._aborted.is_set():
                raise storage_errors.Aborted(path=request.image.path)
            rebuilt = run.run(lambda ranges: channel.manifest(
                bitmap.of_extents(ranges, blocks.BLOCK, request.size)),
                written)
            if rebuilt.canary is None:
                owner.left[request.image.path] = rebuilt.identity
                # It is in use, however little the guest writes.
                os.utime(self._journal)
            else:
                channel.proven(rebuilt.proven, rebuilt.canary)
            self._rebuilt = rebuilt

    def _adopt(self) -> None:
        """Begin with the journal of a replica, if it was handed over."""
        request, taken = self._request, self._journal + TAKEN
        try:
            there = os.stat(request.image.path)
            journals.hand_over(taken, self._journal, request.size,
                               (there.st_dev, there.st_ino),
                               bytes.fromhex(request.watch))
        except FileNotFoundError:
            pass
        except (OSError, storage_errors.JournalUnusable) as error:
            LOG.warning('Disk %s of instance %s: the journal of its replica '
                        'is of no use, so all of the disk is compared: %s',
                        request.target, request.instance_uuid, error)
            os.unlink(taken)

    def _index(self, journal: journals.Journal) -> None:
        """Enter what was built into the index: nothing has to be read.

        In a qcow2 image blocks are elsewhere than in the disk.  What
        changes in a replica is left to the sweep of the indexer.
        """
        request = self._request
        if request.image.format == 'raw' and not (
                self._replica
                and self._owner.index.file(request.image.path)):
            found = fingerprints.of_journal(journal, os.stat(
                request.image.path))
            self._owner.index.add(request.image.path, request.project_id,
                                  found.stat, found.digests, found.numbers)

    def _disk(self) -> rebuild.Disk:
        request = self._request
        try:
            return rebuild.Disk(
                image=_image(request.image), size=request.size,
                journal=self._journal, watch=bytes.fromhex(request.watch),
                granularity=request.granularity,
                backing=tuple(map(_image, request.backing)))
        except ValueError as error:
            raise errors.FillRefused(
                target=request.target, instance=request.instance_uuid,
                reason=error) from error

    def _sources(self) -> list[sources.Source]:
        request, owner = self._request, self._owner
        found: list[sources.Source] = [
            zero.ZeroSource(),
            owner.channel.local_source(request.project_id, request.images)]
        for path in filter(None, map(owner.cached, request.images)):
            try:
                layer = layers.FileLayer(path, owner.roots)
            except (OSError, paths.PathRefused) as error:
                LOG.info('Cached image %s is not read for disk %s: %s',
                         path, request.target, error)
                continue
            found.append(image.ImageSource([layer], request.size,
                                           cost=_FILE))
        if not self._replica:
            found += self._from_replica()
        found += self._from_store()
        for host in request.neighbours:
            found.append(neighbour.NeighbourSource(
                functools.partial(self._connect_source, host, None)))
        if request.source_blocks:
            found.append(source.SourceSource(functools.partial(
                self._connect_source, request.source, request.target)))
        return found

    def _from_replica(self) -> list[sources.Source]:
        request, owner = self._request, self._owner
        path = owner.replica(request.instance_uuid, request.target)
        try:
            return [image.ImageSource(
                [layers.FileLayer(path, owner.roots)], request.size,
                name='replica', cost=_FILE)]
        except FileNotFoundError:
            return []
        except (OSError, paths.PathRefused) as error:
            LOG.warning('Replica %s is not read for disk %s: %s', path,
                        request.target, error)
            return []

    def _from_store(self) -> list[sources.Source]:
        request = self._request
        try:
            return list(self._owner.stored.sources(
                self._store, request.size).values())
        except storage_errors.SourceFailed as error:
            LOG.warning('Images of the image store are not read for disk '
                        '%s of instance %s: %s', request.target,
                        request.instance_uuid, error)
            return []

    def _connect_source(self, host: str, target: str | None
                        ) -> client.Channel:
        """Connect as _connect, with the errors that a source may raise."""
        try:
            return self._connect(host, target)
        except rpc_errors.AgentUnavailable as error:
            raise storage_errors.SourceFailed(name=host,
                                              reason=error) from error

    def _connect(self, host: str, target: str | None) -> client.Channel:
        request = self._request
        return self._owner.channel.connect(
            functools.partial(self._owner.api.channel_offer, self._ctxt,
                              host), host,
            migration_uuid=request.migration_uuid,
            project_id=request.project_id, images=request.images,
            target=target)

    def _note(self, progress: rebuild.Progress) -> None:
        self._progress = progress


def _image(image: disk_objects.DedupImageFile) -> writer.Image:
    return writer.Image(image.path, image.format)
