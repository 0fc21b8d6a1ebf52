# SPDX-License-Identifier: Apache-2.0
"""Disks that this host builds as the destination of migrations."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import hashlib
import os
import threading
import time

from nova_dedup_migrate.agent import disk_channel
from nova_dedup_migrate.agent import disk_filling
from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import stored_images
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.storage import identity
from nova_dedup_migrate.storage import image_store
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.storage.libnbd import nbd

#: Disks at a time, and disks that are remembered.
MAX_RUNNING = 16
MAX_KNOWN = 1024
#: Seconds after which a journal that nobody has used is removed.
JOURNAL_AGE = 24 * 3600.0


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
        self._known: dict[tuple[str, str], disk_filling.DiskFilling] = {}

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
                      self._journal((migration, target)) + disk_filling.TAKEN)
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

        One that is being built has request.seconds from now on.

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
                filling = disk_filling.DiskFilling(
                    self, ctxt, request, self._journal(key), replica, store)
                self._known[key] = filling
                filling.start()
            filling.limit(request.seconds)
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
