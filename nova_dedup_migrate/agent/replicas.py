# SPDX-License-Identifier: Apache-2.0
"""Replicas: disks of instances that are to migrate here later.

A replica is a raw file that was built like the disk of a migration, hours
before.  It is a source of blocks and no disk: the migration builds the disk
anew, finds in the index of this host what the replica has, and proves each
block as always.  So a replica that is old, damaged or of another guest
costs bytes on the link only.

::

    REPLICAS/INSTANCE.TARGET        the file
    REPLICAS/INSTANCE.TARGET.json   whose it is, and until when

A replica goes when its lease is over, when it is cancelled, or when its
instance has come to this host.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import dataclasses
import json
import logging
import os
import re
import threading
import time

from nova_dedup_migrate import values
from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import fillings
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import fields
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import store

LOG = logging.getLogger(__name__)

#: Seconds between two looks for leases that are over.
INTERVAL = 60.0
#: Bytes of a JSON file.
_MAX_NOTE = 4096
_NAME = re.compile(r'(%s)\.([\w-]{1,64})' % fields.UUID)


@dataclasses.dataclass(frozen=True)
class Note:
    """What is known of a replica.

    :ivar preparation: UUID, in place of a migration's
    :ivar expires: seconds since 1970
    """

    preparation: str
    project: str
    source: str
    expires: float


class Replicas:
    """The replicas of this host.

    :param directory: is made if there is none
    :param max_bytes: that all of them may take
    :param filled: builds them
    :param index: of this host
    :param is_here: whether an instance runs on this host
    """

    def __init__(self, directory: str, max_bytes: int,
                 filled: fillings.Fillings, index: store.Index,
                 is_here: Callable[[str], bool]) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._fillings = filled
        self._index = index
        self._is_here = is_here
        self._guard = threading.RLock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='dedup-replicas')

    def start(self) -> None:
        os.makedirs(self._directory, 0o700, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL):
            try:
                self.expire()
            except Exception:
                LOG.exception('Replicas whose lease is over were not '
                              'removed. It is tried again in %g s.',
                              INTERVAL)

    def prepare(self, ctxt: object,
                request: replica_objects.DedupPrepareRequest
                ) -> disk_objects.DedupFillingReply:
        """Begin to build a replica, or to bring one up to date.

        :raises FillRefused:
        """
        fill = request.fill
        name = '%s.%s' % (fill.instance_uuid, fill.target)
        path = os.path.join(self._directory, name)
        if not _NAME.fullmatch(name):
            raise _refused(fill, 'the target is no name of a disk')
        with self._guard:
            known = self._all().get(name)
            if known is not None:
                self._stop(known)
            self._check_space(fill, path, request.data)
            there = known is not None and os.path.isfile(path)
            with open(path, 'ab') as file:
                there = there and os.fstat(
                    file.fileno()).st_size == fill.size
                if not there:
                    file.truncate(0)
                file.truncate(fill.size)
            self._write(path, Note(fill.migration_uuid, fill.project_id,
                                   fill.source, time.time()
                                   + request.lease))
            fill.image = disk_objects.DedupImageFile(path=path,
                                                     format='raw')
            fill.backing = []
            fill.reuse = there
            return self._fillings.fill(ctxt, fill)

    def _check_space(self, fill: disk_objects.DedupFillRequest, path: str,
                     data: int) -> None:
        others = sum(
            _allocated(os.path.join(self._directory, name))
            for name in self._all()
            if os.path.join(self._directory, name) != path)
        if others + min(data, fill.size) > self._max_bytes:
            raise _refused(fill, 'replicas would take %d bytes, more than '
                           '[dedup_migrate] replicas_max_bytes'
                           % (others + data))

    def files(self) -> dict[str, str]:
        """Return path -> owner, for the indexer."""
        with self._guard:
            return {os.path.join(self._directory, name): note.project
                    for name, note in self._all().items()}

    def list(self) -> replica_objects.DedupReplicas:
        """Return all of them."""
        with self._guard:
            return replica_objects.DedupReplicas(replicas=[
                self._describe(name, note)
                for name, note in sorted(self._all().items())
            ][:replica_objects.MAX_REPLICAS])

    def _describe(self, name: str, note: Note
                  ) -> replica_objects.DedupReplica:
        instance, _, target = name.partition('.')
        path = os.path.join(self._directory, name)
        reply = self._fillings.filling(disk_objects.DedupFillingRequest(
            migration_uuid=note.preparation, target=target))
        state, reason = reply.state, reply.reason
        if state == 'unknown' and self._index.file(path) is not None:
            # built before the agent was restarted
            state, reason = 'done', ''
        return replica_objects.DedupReplica(
            instance_uuid=instance, target=target,
            project_id=note.project, source=note.source, state=state,
            reason=reason, done=reply.done, total=reply.total,
            size=os.stat(path).st_size if os.path.exists(path) else 0,
            allocated=_allocated(path), expires=note.expires)

    def cancel(self, instance: str) -> int:
        """Remove the replicas of an instance; return how many."""
        with self._guard:
            found = [name for name in self._all()
                     if name.partition('.')[0] == instance]
            for name in found:
                self._remove(name)
            return len(found)

    def expire(self) -> None:
        """Remove what is not needed any more."""
        with self._guard:
            notes = self._all()
        for name, note in notes.items():
            over = note.expires < time.time()
            if over or self._is_here(name.partition('.')[0]):
                LOG.info('Replica %s is removed: %s', name,
                         'its lease is over' if over
                         else 'its instance is on this host')
                with self._guard:
                    self._remove(name)

    def _remove(self, name: str) -> None:
        path = os.path.join(self._directory, name)
        note = self._all().get(name)
        if note is not None:
            self._stop(note)
        self._index.remove(path)
        for each in (path, path + '.json'):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(each)

    def _stop(self, note: Note) -> None:
        """Stop a build; none may write when another one begins."""
        self._fillings.abort(note.preparation)

    def _write(self, path: str, note: Note) -> None:
        with open(path + '.new', 'w') as file:
            json.dump(dataclasses.asdict(note), file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + '.new', path + '.json')

    def _all(self) -> dict[str, Note]:
        """Return name -> what is known, of those that are complete."""
        found = {}
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return {}
        for entry in names:
            name = entry.removesuffix('.json')
            if entry != name and _NAME.fullmatch(name):
                path = os.path.join(self._directory, entry)
                try:
                    found[name] = _read(path)
                except (OSError, ValueError) as error:
                    LOG.warning('%s is no note of a replica: %s. Remove it '
                                'and the file beside it.', path, error)
        return found


def _read(path: str) -> Note:
    """:raises ValueError: it is none"""
    with open(path, 'rb') as file:
        data = file.read(_MAX_NOTE + 1)
    content = json.loads(data) if len(data) <= _MAX_NOTE else None
    if not isinstance(content, dict):
        raise ValueError('it is no object of at most %d bytes' % _MAX_NOTE)
    expires = values.finite(content.get('expires'))
    if expires is None or not all(
            isinstance(content.get(name), str)
            for name in ('preparation', 'project', 'source')):
        raise ValueError('a field is missing')
    return Note(content['preparation'], content['project'],
                content['source'], expires)


def _allocated(path: str) -> int:
    try:
        return os.stat(path).st_blocks * blocks.SECTOR
    except FileNotFoundError:
        return 0


def _refused(fill: disk_objects.DedupFillRequest, reason: str
             ) -> errors.FillRefused:
    return errors.FillRefused(target=fill.target,
                              instance=fill.instance_uuid, reason=reason)
