# SPDX-License-Identifier: Apache-2.0
"""Volumes in use move to other storage, one or two at once.

full       a mirror of all blocks
selective  the base image, which is an old full backup, comes from the
           backup daemon; all that was written since from the volume
ours       the newest backup comes from the daemon; what was written since
           from the volume

The fingerprints of the last two are taken before the move.
"""

from __future__ import annotations

from concurrent import futures
import contextlib
import filecmp
import os
import pathlib
import shutil
import tempfile
import time
from typing import NamedTuple

from benchmarks import measure
from benchmarks import volume_daemon
from benchmarks import volume_load
from benchmarks import volume_report
from benchmarks import volume_servers
from cinder_backup_assist.tests.cinder_functional import real_backups
from cinder_backup_assist.tests.cinder_functional import test_service
from nova_dedup_migrate.backups import reader
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.sources import backup as backup_source
from nova_dedup_migrate.swaps import fill
from nova_dedup_migrate.swaps import fingerprints
from nova_dedup_migrate.swaps import reading
from nova_dedup_migrate.swaps import watches
from nova_dedup_migrate.tests.functional.disks import rig
from testkit import spec

FULL, SELECTIVE, OURS = WAYS = ('full', 'selective', 'ours')
_MIB = 1 << 20
_CHANGE = 65536
#: Shares of the volume that are written to between the base image and the
#: newest backup, as in the paper, and after it.
_OLD, _NEW = 0.20, 0.02
#: (bytes, requests a second at most)
_GUEST, _NEIGHBOUR = (16384, 100), (65536, 80)
#: Seconds for a mirror.
_MIRROR = 7200


class _Filled(NamedTuple):
    """When a target was filled.

    :ivar seconds: since the move began
    :ivar count: of the guest's load
    :ivar busy: of measure.busy_seconds
    """

    fetched: int
    seconds: float
    count: volume_load.Count
    busy: float


class _Done(NamedTuple):
    """When a mirror was ready; filled is None in a copy of all."""

    filled: _Filled | None
    mark: int
    seconds: float
    count: volume_load.Count


class _Volume(rig.Rig):
    """One QEMU, its volume and the target."""

    def __init__(self, test, binary, storage, name, path):
        self.name, self.path = name, path
        self.target = path.with_suffix('.target')
        with open(self.target, 'wb') as file:
            file.truncate(path.stat().st_size)
        self.monitor = test.temporary_dir() / 'monitor'
        super().__init__(
            test, binary, disk=spec.Disk(blockdev=(
                {'driver': 'nbd', 'node-name': 'disk0-nbd', 'export': name,
                 'server': {'type': 'unix', 'path': str(storage.address)}},
                {'driver': 'raw', 'node-name': 'disk0-format',
                 'file': 'disk0-nbd'})),
            target=spec.Disk(path=self.target), image=(path, 'raw'),
            target_image=(self.target, 'raw'), extra_args=(
                '-chardev', 'socket,id=io,server=on,wait=off,path=%s'
                % self.monitor, '-mon', 'chardev=io,mode=control'))

    def mirror_to_ready(self, link):
        """Start the target and mirror; return the mark of the job."""
        self.start_target()
        self._address = link.target(self._address)
        mark = self.begin_mirror()
        self.source.events.wait('BLOCK_JOB_READY', mark, _MIRROR)
        return mark


class Moves(test_service.ServiceTestCase):
    """Moves volumes; not run as a test, but needs what a test has.

    :cvar size: bytes of a volume
    :cvar rate: bytes a second of the source's storage
    :cvar before: seconds of I/O before a move
    :cvar binary: path of the patched QEMU
    :cvar work: called with this when all is there
    """

    size = 0
    rate = 0
    before = 0.0
    binary = ''
    work = None
    object_size = 32 * _MIB

    def runTest(self):
        self.directory = pathlib.Path(self.directory)
        base = self.directory / 'base'
        base.write_bytes(self.content(self.size))
        aged = self.directory / 'aged'
        shutil.copy(base, aged)
        with open(aged, 'r+b') as file:
            for number, offset in enumerate(self.places(_OLD)):
                file.seek(offset)
                file.write(bytes([number % 255 + 1]) * _CHANGE)
        self._images = {FULL: aged, SELECTIVE: base, OURS: aged}
        self._old = {}
        # Makes files, so not in a thread of each volume.
        self._tls = self.tls()
        type(self).work(self)

    def temporary_dir(self):
        """As rig.Rig has it of its test."""
        return pathlib.Path(tempfile.mkdtemp(prefix='v', dir=self._here))

    def places(self, share):
        """Return the offsets of changes, spread over the volume."""
        count = max(int(self.size * share) // _CHANGE, 1)
        return [number * self.size // count // _CHANGE * _CHANGE
                for number in range(count)]

    def move(self, way, count, rate):
        """Move volumes at once; return volume_report.Moved.

        :param way: of WAYS
        :param count: of volumes
        :param rate: bytes a second of the link
        """
        with tempfile.TemporaryDirectory(dir=self.directory) as here:
            self._here = pathlib.Path(here)
            self.records = watches.Records(str(self._here / 'watches'))
            return self._move(way, count, rate)

    def _move(self, way, count, rate):
        files = {'volume%d' % number: self._here / ('volume%d' % number)
                 for number in range(count)}
        for path in files.values():
            shutil.copy(self._images[way], path)
        neighbour = self._here / 'neighbour'
        shutil.copy(self._images[way], neighbour)
        storage = self.storage(files, neighbour)
        volumes = [_Volume(self, self.binary, storage, *item)
                   for item in files.items()]
        for one in volumes:
            one.source.start(paused=True)
        records = [self._prepare(way, one) for one in volumes]
        daemon = self._daemon() if way != FULL else None
        link = self._link(rate, daemon)
        load = volume_load.Load(volume_load.neighbour(
            storage.address, 'neighbour', _NEIGHBOUR[0]), *_NEIGHBOUR)
        loads = [load] + [
            volume_load.Load(volume_load.guest(
                one.monitor, _GUEST[0], self.size, self.places(_NEW)),
                *_GUEST) for one in volumes]
        try:
            moved, marks = self._measure(
                volumes, records, storage, daemon, link, loads)
        finally:
            for load in loads:
                load.stop()
        for one, mark in zip(volumes, marks, strict=True):
            one.finish_mirror(mark)
            one.end()
        storage.stop()
        link.stop()
        if daemon:
            daemon.stop()
        for one in volumes:
            if not filecmp.cmp(one.path, one.target, shallow=False):
                self.fail('%s, %d at once: the target of %s is not the '
                          'volume' % (way, count, one.name))
        return moved

    def storage(self, files, neighbour):
        found = volume_servers.Storage(
            self.tool(), self._here, {**files, 'neighbour': neighbour},
            self.rate)
        self.addCleanup(found.stop)
        return found

    def tool(self):
        return os.path.join(os.path.dirname(self.binary),
                            'qemu-storage-daemon')

    def _daemon(self):
        found = volume_daemon.Daemon(self, str(self._here / 'database'))
        self.addCleanup(found.stop)
        return found

    def _link(self, rate, daemon):
        found = volume_servers.Link(rate)
        self.addCleanup(found.stop)
        if daemon:
            found.server(daemon.port)
        return found

    # Before the move

    def _prepare(self, way, one):
        """Bring a volume and its backups into the state of a way.

        :returns: (watches.Record, bytes read for its fingerprints), None
            for a copy of all
        """
        if way == FULL:
            self._change(one, _NEW)
            return None
        if way == OURS and one.name not in self._old:
            volume = self.make_volume()
            self._old[one.name] = volume, self.back_up(
                volume, self._images[SELECTIVE].read_bytes())
        volume, old = (self._old[one.name] if way == OURS
                       else (self.make_volume(), None))
        (device,) = one.source.disks().values()
        record = self.records.begin(one.source, device, one.name, 'vda',
                                    volume.id)
        read = self._read(one, record)
        self.back_up(volume, one.path.read_bytes(), old)
        if way == SELECTIVE:
            self._change(one, _OLD)
        self._change(one, _NEW)
        return record, read

    def _read(self, one, record):
        """Take a volume's fingerprints, as its reader would in time."""
        watch = watches.of(one.source, record.token)
        read = 0
        with contextlib.closing(fingerprints.Fingerprints(
                self.records.fingerprints(one.name, 'vda'), watch)) as known:
            with (one.source.exported_disk(watch.node_name) as path,
                  reading.connected(path) as disk):
                for at in range(0, watch.size, reading.STEP):
                    read += reading.read(
                        one.source, watch, disk, known, at,
                        min(reading.STEP, watch.size - at))
        return read

    def _change(self, one, share):
        """Write to some of the volume, as a guest would."""
        for number, offset in enumerate(self.places(share)):
            one.io('write', '-q', '-P', number % 255 + 1, offset, _CHANGE)

    # The move

    def _measure(self, volumes, records, storage, daemon, link, loads):
        time.sleep(1.0)
        first = [load.count() for load in loads]
        time.sleep(self.before)
        begun = [load.count() for load in loads]
        read = storage.read()
        used = daemon.used() if daemon else (0.0, 0)
        busy = measure.busy_seconds()
        start = time.monotonic()

        def work(number):
            filled = None
            if daemon:
                fetched = self._fill(volumes[number], records[number][0],
                                     daemon)
                filled = _Filled(fetched, time.monotonic() - start,
                                 loads[1 + number].count(),
                                 measure.busy_seconds())
            mark = volumes[number].mirror_to_ready(link)
            return _Done(filled, mark, time.monotonic() - start,
                         loads[1 + number].count())

        with futures.ThreadPoolExecutor(len(volumes)) as pool:
            done = list(pool.map(work, range(len(volumes))))
        ended = [load.count() for load in loads]

        def guests(counts):
            shares = [volume_load.share((first[number], begun[number]),
                                        (begun[number], count))
                      for number, count in enumerate(counts, 1)]
            return sum(shares) / len(shares)

        filled = [one.filled for one in done if one.filled]
        last = max(filled, key=lambda one: one.seconds, default=None)
        moved = storage.read() - read - sum(
            after.read - before.read
            for before, after in zip(begun, ended, strict=True))
        now = daemon.used() if daemon else (0.0, 0)
        return volume_report.Moved(
            seconds=max(one.seconds for one in done),
            filling=last.seconds if last else 0.0,
            read=moved, guests=guests(one.count for one in done),
            filled=guests(one.count for one in filled) if last else None,
            busy=(last.busy - busy) / last.seconds / os.cpu_count()
            if last else None,
            neighbour=volume_load.share((first[0], begun[0]),
                                        (begun[0], ended[0])),
            processor=now[0] - used[0], store=now[1] - used[1],
            fetched=sum(one.fetched for one in filled),
            before=sum(one[1] for one in records if one)), [
                one.mark for one in done]

    def _fill(self, one, record, daemon):
        backup = reader.BackupReader(
            daemon.api, self._tls, test_service.HOST, record.volume_id,
            real_backups.PROJECT, record.refusal)
        watch = watches.of(one.source, record.token)
        with contextlib.closing(fingerprints.Fingerprints(
                self.records.fingerprints(one.name, 'vda'), watch)) as known:
            return fill.fill(
                one.source, watch, known, backup_source.BackupSource(backup),
                writer.Image(str(one.target), 'raw'),
                str(one.target.with_suffix('.journal')),
                rebuild.Limits(reserve=0), self.binary).fetched
