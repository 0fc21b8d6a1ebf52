# SPDX-License-Identifier: Apache-2.0
"""Replicas: disks of instances that are to migrate here later.

A replica is a raw file that was built like the disk of a migration, hours
before.  It is a source of blocks and no disk: the migration builds the disk
anew, finds in the replica what it has, and proves each block as always.
So a replica that is damaged or of another guest costs bytes on the link
only.

It is kept current.  The source's QEMU goes on recording the guest's writes;
a refresh reads again what was written.  The journal of the replica has the
digest of each block as it was when its bit was cleared.  So the disk is that
of the journal, but what QEMU's bitmap has:

    journal of the replica   digest of block 7: d
    QEMU's bitmap            block 7 is not written
    so                       block 7 of the guest's disk is d

A migration takes the journal over and resumes the watch, so the source reads
only what was written.  If QEMU has forgotten the watch, because it was
restarted, or a mirror has used it, the journal is of no use: all of the disk
is read and compared once more.

::

    REPLICAS/INSTANCE.TARGET        the file
    REPLICAS/INSTANCE.TARGET.json   whose it is, and until when

The journal is with those of migrations (fillings).  A replica goes when
its lease is over, when it is cancelled, or when its instance has come to
this host.
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
from typing import Any

from nova_dedup_migrate import errors as base_errors
from nova_dedup_migrate import values
from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import fillings
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import fields
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.rpc import watch_objects
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
    :ivar images: IDs of those the instance was made of
    :ivar watch: names the record of writes in the source's QEMU; '' if it
        does not go on
    :ivar granularity: bytes of a bit of that
    :ivar expires: seconds since 1970
    :ivar begun: the last build or refresh, likewise
    :ivar refreshed: the last that was completed; 0: none
    """

    preparation: str
    project: str
    images: tuple[str, ...]
    source: str
    watch: str
    granularity: int
    expires: float
    begun: float
    refreshed: float = 0.0


class Replicas:
    """The replicas of this host.

    :param directory: is made if there is none
    :param max_bytes: that all of them may take
    :param filled: builds them
    :param index: of this host
    :param is_here: whether an instance runs on this host
    :param api: of the agents
    :param interval: seconds between two refreshes of one, 0: none
    :param is_busy: whether a migration is under way here
    """

    def __init__(self, directory: str, max_bytes: int,
                 filled: fillings.Fillings, index: store.Index,
                 is_here: Callable[[str], bool], api: rpc_api.AgentAPI,
                 interval: float, is_busy: Callable[[], bool]) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._fillings = filled
        self._index = index
        self._is_here = is_here
        self._api = api
        self._interval = interval
        self._is_busy = is_busy
        #: name -> why the last refresh did not begin
        self._reasons: dict[str, str] = {}
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
            for step in self.expire, self.refresh:
                try:
                    step()
                except Exception:
                    LOG.exception('Replicas were not looked after. It is '
                                  'tried again in %g s.', INTERVAL)

    def prepare(self, ctxt: object,
                request: replica_objects.DedupPrepareRequest
                ) -> disk_objects.DedupFillingReply:
        """Begin to build a replica, or to bring one up to date.

        :raises FillRefused:
        """
        fill = request.fill
        name = '%s.%s' % (fill.instance_uuid, fill.target)
        if not _NAME.fullmatch(name):
            raise _refused(fill, 'the target is no name of a disk')
        with self._guard:
            known = self._all().get(name)
            if known is not None:
                # Two may not write at the same time.
                self._fillings.abort(known.preparation)
            note = Note(fill.migration_uuid, fill.project_id,
                        tuple(fill.images), fill.source, fill.watch,
                        fill.granularity, time.time() + request.lease,
                        time.time())
            return self._fill(ctxt, name, note, fill, request.data,
                              known is not None)

    def _fill(self, ctxt: object, name: str, note: Note,
              fill: disk_objects.DedupFillRequest, data: int, known: bool
              ) -> disk_objects.DedupFillingReply:
        """Have the file filled, after it was noted.

        :param data: bytes that it may come to
        :param known: whether it is one of ours
        :raises FillRefused:
        """
        path = os.path.join(self._directory, name)
        self._check_space(fill, path, data)
        there = known and os.path.isfile(path)
        with open(path, 'ab') as file:
            there = there and os.fstat(file.fileno()).st_size == fill.size
            if not there:
                file.truncate(0)
            file.truncate(fill.size)
        self._write(path, note)
        self._reasons.pop(name, None)
        fill.image = disk_objects.DedupImageFile(path=path, format='raw')
        fill.backing = []
        fill.reuse = there
        return self._fillings.fill(ctxt, fill, True)

    def refresh(self) -> None:
        """Begin to make one replica current, if the time has come.

        One at a time, that which was begun first, and none while a
        migration is under way: they share this host's disks and link.
        """
        with self._guard:
            notes = self._all()
        for name, note in notes.items():
            state = self._filling(name, note).state
            if state == 'running':
                return
            if state == 'done' and note.refreshed < note.begun:
                notes[name] = self._change(name, note, refreshed=note.begun)
        now = time.time()
        for name, note in sorted(notes.items(),
                                 key=lambda item: item[1].begun):
            if not self._interval:
                self._let_go(name, note)
            elif note.refreshed and not (
                    0 <= now - note.begun < self._interval):
                if not self._is_busy():
                    self._refresh(name, note)
                return

    def _refresh(self, name: str, note: Note) -> None:
        instance, _, target = name.partition('.')
        path = os.path.join(self._directory, name)
        try:
            watch = self._api.watch_disk(
                {}, note.source, watch_objects.DedupWatchRequest(
                    instance_uuid=instance, target=target,
                    migration_uuid=note.preparation, replica=True,
                    resume=note.watch or None))
            with self._guard:
                if self._all().get(name) != note:
                    # It was cancelled, taken or prepared anew meanwhile.
                    return
                if watch.watch != note.watch:
                    LOG.info('All of replica %s is compared: the source\'s '
                             'QEMU has no record of the writes since', name)
                    self._fillings.abort(note.preparation)
                    data = watch.data
                else:
                    data = _allocated(path) + watch.dirty
                self._fill({}, name, dataclasses.replace(
                    note, watch=watch.watch, begun=time.time(),
                    granularity=watch.granularity),
                    disk_objects.DedupFillRequest(
                        instance_uuid=instance, target=target,
                        migration_uuid=note.preparation,
                        project_id=note.project, images=list(note.images),
                        image=disk_objects.DedupImageFile(path=path,
                                                          format='raw'),
                        size=watch.size, granularity=watch.granularity,
                        watch=watch.watch, source=note.source,
                        source_blocks=True,
                        seconds=max(1.0, note.expires - time.time())),
                    data, True)
        except (base_errors.DedupMigrateError, ValueError) as error:
            LOG.warning('Replica %s is not refreshed: %s', name, error)
            with self._guard:
                now = self._all().get(name)
                if now and now.preparation == note.preparation:
                    self._reasons[name] = str(error)
                    self._change(name, now, begun=time.time())

    def take(self, request: replica_objects.DedupTakeRequest) -> str:
        """Let a migration begin with the journal of a replica.

        :returns: the watch that the journal is of; '' if there is none
        """
        name = '%s.%s' % (request.instance_uuid, request.target)
        with self._guard:
            note = self._all().get(name)
            if note is None or not note.watch:
                return ''
            taken = self._fillings.hand_over(
                note.preparation, request.target, request.migration_uuid)
            self._change(name, note, watch='', begun=time.time())
            return note.watch if taken else ''

    def _let_go(self, name: str, note: Note) -> None:
        """Have QEMU record writes no longer for a replica that is done."""
        if note.watch and note.refreshed:
            self._change(name, note, watch='')
            self._forget(note)

    def _change(self, name: str, note: Note, **values: Any) -> Note:
        """Write a note with other values, if it is as it was."""
        new = dataclasses.replace(note, **values)
        with self._guard:
            if self._all().get(name) == note:
                self._write(os.path.join(self._directory, name), new)
        return new

    def _forget(self, note: Note) -> None:
        """Have the source forget the watch of a replica."""
        try:
            self._api.forget_disks({}, note.source, note.preparation)
        except base_errors.DedupMigrateError as error:
            LOG.warning('Host %s may go on recording writes for preparation '
                        '%s: %s', note.source, note.preparation, error)

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
            ][:objects.MAX_REPLICAS])

    def _describe(self, name: str, note: Note
                  ) -> replica_objects.DedupReplica:
        instance, _, target = name.partition('.')
        path = os.path.join(self._directory, name)
        reply = self._filling(name, note)
        state, reason = reply.state, reply.reason
        if state == 'unknown' and self._index.file(path) is not None:
            # built before the agent was restarted
            state, reason = 'done', ''
        if state != 'running' and name in self._reasons:
            state = 'failed'
            reason = self._reasons[name][:objects.MAX_REASON]
        return replica_objects.DedupReplica(
            instance_uuid=instance, target=target,
            project_id=note.project, source=note.source, state=state,
            reason=reason, done=reply.done, total=reply.total,
            size=os.stat(path).st_size if os.path.exists(path) else 0,
            allocated=_allocated(path), expires=note.expires,
            refreshed=note.refreshed)

    def _filling(self, name: str, note: Note
                 ) -> disk_objects.DedupFillingReply:
        return self._fillings.filling(disk_objects.DedupFillingRequest(
            migration_uuid=note.preparation,
            target=name.partition('.')[2]))

    def cancel(self, instance: str) -> int:
        """Remove the replicas of an instance; return how many."""
        with self._guard:
            found = {name: note for name, note in self._all().items()
                     if name.partition('.')[0] == instance}
            for name, note in found.items():
                self._remove(name, note)
        for note in found.values():
            self._forget(note)
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
                    self._remove(name, note)
                self._forget(note)

    def _remove(self, name: str, note: Note) -> None:
        path = os.path.join(self._directory, name)
        self._fillings.abort(note.preparation)
        self._reasons.pop(name, None)
        self._index.remove(path)
        for each in (path, path + '.json'):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(each)

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
    images = content.get('images')
    if set(content) != {field.name for field in dataclasses.fields(Note)} or (
            not isinstance(images, list)):
        raise ValueError('a field is missing')
    for field in dataclasses.fields(Note):
        value = content[field.name]
        if field.type == 'str' and not isinstance(value, str):
            raise ValueError('%s is no text' % field.name)
        if field.type in ('int', 'float') and values.finite(value) is None:
            raise ValueError('%s is no number' % field.name)
    return Note(**{**content, 'images': tuple(map(str, images))})


def _allocated(path: str) -> int:
    try:
        return os.stat(path).st_blocks * blocks.SECTOR
    except FileNotFoundError:
        return 0


def _refused(fill: disk_objects.DedupFillRequest, reason: str
             ) -> errors.FillRefused:
    return errors.FillRefused(target=fill.target,
                              instance=fill.instance_uuid, reason=reason)
