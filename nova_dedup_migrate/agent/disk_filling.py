# SPDX-License-Identifier: Apache-2.0
"""One disk that this host builds as the destination of a migration.

::

    build   a connection to the source; the manifest, the blocks
    send    another connection: what is proven, the canary

Each is repeated if its connection breaks.  At the end of its time a build
returns with what is proven by then.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import functools
import logging
import math
import os
import threading
import time
import typing

from nova_dedup_migrate import errors as base_errors
from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage import journal as journals
from nova_dedup_migrate.storage import layers
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.channel import client
from nova_dedup_migrate.storage.channel import errors as channel_errors
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.sources import base as sources
from nova_dedup_migrate.storage.sources import image
from nova_dedup_migrate.storage.sources import neighbour
from nova_dedup_migrate.storage.sources import source
from nova_dedup_migrate.storage.sources import zero

if typing.TYPE_CHECKING:
    # It imports this module.
    from nova_dedup_migrate.agent import fillings

LOG = logging.getLogger(__name__)

#: Connections for one step, if one to the source breaks.
ATTEMPTS = 3
#: End of the name of a journal that a replica had.
TAKEN = '.taken'
#: What a replica or a cached image costs to read: a file of this host.
_FILE = sources.Cost(rate=500e6, latency=0.002)

_Result = typing.TypeVar('_Result')


class DiskFilling:
    """One disk, in a thread of its own."""

    def __init__(self, owner: fillings.Fillings, ctxt: object,
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
        self._late = threading.Event()
        self._timer: threading.Timer | None = None
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
            channel.end()

    def limit(self, seconds: float) -> None:
        """Have it end after so many seconds, with what is proven then."""
        if self._timer is not None:
            self._timer.cancel()
        if self.running:
            self._timer = threading.Timer(
                min(seconds, threading.TIMEOUT_MAX), self._finish)
            self._timer.daemon = True
            self._timer.start()

    def _finish(self) -> None:
        self._late.set()
        run, channel = self._run, self._channel
        # Without a run it sends what is proven.
        if run is not None:
            run.finish()
            if channel is not None:
                channel.end()

    def wait(self, seconds: float | None) -> None:
        self._ended.wait(seconds)

    def reply(self, wait: float) -> disk_objects.DedupFillingReply:
        """Return how far it is, after wait seconds or at its end."""
        self.wait(wait)
        state, reason = 'running', ''
        if self._ended.is_set():
            if self._failure or self._rebuilt is None:
                state, reason = 'failed', self._failure
            else:
                state, reason = 'done', self._rebuilt.stopped
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
            rebuilt = self._persist(self._build)
            self._persist(functools.partial(self._send, rebuilt))
            self._rebuilt = rebuilt
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
            if self._timer is not None:
                self._timer.cancel()

    def _persist(self, step: Callable[[], _Result]) -> _Result:
        """Return what a step does, repeated if its connection breaks."""
        request = self._request
        for attempt in range(2, ATTEMPTS + 1):
            try:
                return step()
            except (channel_errors.ChannelBroken,
                    rpc_errors.AgentUnavailable) as error:
                if self._aborted.is_set():
                    raise
                LOG.warning('Disk %s of instance %s: %s. Attempt %d of %d '
                            'follows.', request.target,
                            request.instance_uuid, error, attempt, ATTEMPTS)
        return step()

    def _build(self) -> rebuild.Rebuilt:
        request, owner = self._request, self._owner
        with contextlib.ExitStack() as stack:
            channel = stack.enter_context(contextlib.closing(
                self._connect(request.source, request.target)))
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
                rebuild.Limits(seconds=math.inf, reserve=owner.reserve),
                self._note, self._index, request.reuse, owner.program,
                owner.roots, self._replica,
                owner.left.pop(request.image.path, None))
            self._run = run
            stack.callback(setattr, self, '_run', None)
            if self._aborted.is_set():
                raise storage_errors.Aborted(path=request.image.path)
            if self._late.is_set():
                run.finish()
            return run.run(lambda ranges: channel.manifest(
                bitmap.of_extents(ranges, blocks.BLOCK, request.size)),
                written)

    def _send(self, rebuilt: rebuild.Rebuilt) -> None:
        """Send what is proven.

        By a connection of its own: a manifest that was not read to its end
        may be in the way on the other.
        """
        request = self._request
        if rebuilt.canary is None:
            self._owner.left[request.image.path] = rebuilt.identity
            # It is in use, however little the guest writes.
            os.utime(self._journal)
            return
        with contextlib.closing(self._connect(
                request.source, request.target)) as channel:
            self._channel = channel
            if self._aborted.is_set():
                raise storage_errors.Aborted(path=request.image.path)
            channel.proven(rebuilt.proven, rebuilt.canary)

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
