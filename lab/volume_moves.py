# SPDX-License-Identifier: Apache-2.0
"""An instance whose volumes are backed up and move, and what came of it.

All of it by calls of Nova and Cinder, as an administrator makes them.  What
they do not tell is read from the hosts: the file of a volume on its NAS, what
the NAS has sent, what the driver has noted about the swap.
"""

import contextlib
import dataclasses
import json
import subprocess
import time

import numpy

from guests.synthetic import console
from lab import client
from lab import errors
from lab import faults
from lab import guest
from lab import instances
from lab.services import backups
from nova_dedup_migrate.swaps import fingerprints
from nova_dedup_migrate.swaps import operations

NAME = 'volumes'
_VOLUMES = 'var/lib/nova/dedup_migrate/volumes'
_BRICK = 'srv/nas/brick'
#: Bytes of a block, where files differ.
_COMPARED = 32768
_LIMIT = 900.0
#: Share of a volume that has to be known before it moves.
_KNOWN = 0.98
#: KB/s and seconds that the guest writes for.
_RATE, _WRITES = 400, 4.0
_VERIFY = 600.0
#: Cinder's statuses of a volume that moves.
_MOVING = ('starting', 'migrating', 'completing')


@dataclasses.dataclass(frozen=True)
class Swapped:
    """A volume that has moved, or not.

    :ivar seconds: from the request until Cinder was done with it
    :ivar read: bytes that the storage it left has sent
    :ivar moved: whether it is on the other backend
    :ivar noted: operations.Swap of the driver, None if there is none
    """

    seconds: float
    read: int
    moved: bool
    noted: operations.Swap | None

    @property
    def filled(self):
        """Bytes that were not copied from the old volume."""
        sources = self.noted.sources if self.noted else {}
        return sources.get('backup', 0) + sources.get('zero', 0)


class Subject:
    """The instance, with two volumes: vda and vdb.

    :param cloud: Cloud, with backups
    """

    def __init__(self, cloud, server):
        self.cloud = cloud
        self.id = server.id

    @classmethod
    def boot(cls, cloud, progress, name=NAME):
        """Boot it; return when its memory is filled."""
        compute = client.connect(cloud).compute
        server = instances.wait_active(compute, instances.boot(
            cloud, name, 'dedup', instances.Disks('volume', 'volume')))
        one = cls(cloud, server)
        console.ready(one.terminal, _LIMIT)
        progress.say('%s: runs on %s, its memory is filled' % (
            name, one.host.name))
        return one

    def delete(self):
        """Delete it, its volumes and their backups."""
        storage = self._storage
        volumes = list(self.volumes().values())
        instances.delete(client.connect(self.cloud).compute, self.server)
        for volume in volumes:
            # Those that others need go last.
            for backup in reversed(self.backups(volume)):
                storage.delete_backup(backup.id)
                storage.wait_for_delete(backup, interval=0.5, wait=60)

    # What it is

    @property
    def _storage(self):
        return client.connect(self.cloud).block_storage

    @property
    def server(self):
        return client.connect(self.cloud).compute.get_server(self.id)

    @property
    def host(self):
        """The lab host it is on."""
        return instances.host_of(self.cloud, self.server)

    @property
    def terminal(self):
        return guest.console(self.host, self.id)

    def volumes(self):
        """Return the UUID of the volume of each disk, such as vda."""
        return {one.device.rpartition('/')[2]: one.volume_id
                for one in client.connect(self.cloud).compute
                .volume_attachments(self.id)}

    def backups(self, volume):
        """Return the backups of a volume, the oldest first."""
        return sorted(self._storage.backups(volume_id=volume),
                      key=lambda one: one.created_at)

    def file(self, volume):
        """Return (lab host of the NAS, Path of a volume's file there)."""
        found = self._storage.get_volume(volume)
        host = self.cloud.host(
            found.host.partition('@')[2].partition('#')[0])
        return host, host.directory / _BRICK / (
            'volume-%s' % (found.migration_id or found.id))

    @contextlib.contextmanager
    def kept(self, volume):
        """Keep a volume's file, which Cinder deletes; yield its Path."""
        host, path = self.file(volume)
        kept = host.directory / ('kept-' + path.name)
        kept.unlink(missing_ok=True)
        kept.hardlink_to(path)
        try:
            yield kept
        finally:
            kept.unlink()

    @contextlib.contextmanager
    def copied(self, kept):
        """Copy a file of a NAS, which may change; yield the copy's Path."""
        copy = kept.with_name('copy-of-' + kept.name)
        subprocess.run(['cp', '--sparse=always', '--reflink=auto', kept,
                        copy], check=True)
        try:
            yield copy
        finally:
            copy.unlink()

    def different(self, kept, volume):
        """Return what differs from a file that was kept, '' if nothing."""
        return different(kept, self.file(volume)[1])

    # What it does

    def ask(self, command, timeout=_VERIFY):
        return console.ask(self.terminal, command, timeout)

    def write(self, seconds=_WRITES):
        """Have it write to its files, on both disks."""
        self.begin_to_write()
        time.sleep(seconds)
        self.rest()

    def begin_to_write(self, rate=_RATE):
        self.ask('start pagecache-writer rate=%d readrate=1' % rate)

    def rest(self):
        """Have it write no more; all is on its disks afterwards."""
        self.ask('stop')
        self.ask('drop')

    @contextlib.contextmanager
    def stopped(self):
        """Its processors stand still: its kernel would write some time."""
        self.host.run(['virsh', 'suspend', self.id])
        try:
            yield
        finally:
            self.host.run(['virsh', 'resume', self.id])

    def wrong(self):
        """Have it compare all files and all memory; yield what is wrong."""
        reply = self.ask('verify cache disk anon')
        if reply.get('errors') or not reply.get('disk'):
            yield 'the guest found %s errors in %s bytes: %s' % (
                reply.get('errors'), reply.get('disk'), reply.get('error'))

    # Backups

    def wait_recorded(self, disk):
        """Wait until the driver records the writes to a disk."""
        volume = self.volumes()[disk]
        path = (self.host.directory / _VOLUMES / 'watches'
                / ('%s.%s.json' % (self.id, disk)))
        self._wait('the writes to volume %s are not recorded' % volume,
                   lambda: path.exists() and json.loads(
                       path.read_text())['volume_id'] == volume, 60)

    def wait_read(self, disk):
        """Wait until the driver knows what most blocks of a disk are."""
        volume = self.volumes()[disk]
        path = (self.host.directory / _VOLUMES / 'watches'
                / ('%s.%s.fingerprints' % (self.id, disk)))
        self._wait('volume %s is not read' % volume,
                   lambda: known(path) >= _KNOWN, _LIMIT)

    def back_up(self, disk):
        """Make a full backup, have the guest write, make an increment.

        Returns when the volume is read: what was written last may not be.
        """
        self.wait_recorded(disk)
        volume = self.volumes()[disk]
        self.rest()
        for incremental in (False, True):
            backup = self._storage.create_backup(
                volume_id=volume, force=True, is_incremental=incremental)
            self._wait('backup %s is not available' % backup.id,
                       lambda backup=backup: self._available(backup), 300)
            # What was written after the increment has to come from the
            # volume.
            self.write()
        self.wait_read(disk)

    def _available(self, backup):
        status = self._storage.get_backup(backup.id).status
        if status == 'error':
            raise errors.LabError('backup %s has failed: see the log of %s'
                                  % (backup.id, backups.BACKUP))
        return status == 'available'

    # Moving

    def pool(self, backend):
        """Return the pool of a backend, such as nas2."""
        for one in self._storage.backend_pools():
            if one.name.startswith('control@%s#' % backend):
                return one.name
        raise errors.LabError('Cinder has no pool of %s' % backend)

    def other(self, disk):
        """Return the backend that a disk's volume is not on."""
        here = self.file(self.volumes()[disk])[0].name
        return next(name for name in self.cloud.settings.nases
                    if name != here)

    def request(self, disk, backend=None, kind=None):
        """Request that a volume moves.

        :param backend: where to; by default the one it is not on
        :param kind: type that it is to get instead
        """
        volume = self.volumes()[disk]
        if kind:
            self._storage.retype_volume(volume, kind, 'on-demand')
        else:
            self._storage.migrate_volume(
                volume, host=self.pool(backend or self.other(disk)))

    def abort(self, disk):
        """End the move of a volume by the command for that.

        :raises LabError: it fails
        """
        self.cloud.execute(self.host, 'abort', [
            *self.cloud.script('nova-dedup-migrate'), 'swap', 'abort',
            self.id, self.volumes()[disk]])

    def is_moving(self, disk):
        volume = self._storage.get_volume(self.volumes()[disk])
        return (volume.migration_status in _MOVING
                or volume.status == 'retyping')

    def wait_moved(self, disk, limit=_LIMIT):
        """Wait until Cinder moves it no more.

        :raises LabError: it does after limit seconds
        """
        self._wait('volume %s still moves' % self.volumes()[disk],
                   lambda: not self.is_moving(disk), limit)

    def swap(self, disk, kind=None, meanwhile=None):
        """Move a disk's volume to the other backend; a Swapped.

        :param meanwhile: context in which is waited for the move
        """
        volume = self.volumes()[disk]
        before = self.file(volume)[0]
        sent = before.link('storage').carried()[0]
        begun = time.monotonic()
        self.request(disk, kind=kind)
        with meanwhile or contextlib.nullcontext():
            self.wait_moved(disk)
            seconds = time.monotonic() - begun
            read = before.link('storage').carried()[0] - sent
        return Swapped(
            seconds, read,
            self.file(volume)[0] is not before, self.noted(disk))

    def noted(self, disk):
        """Return what the driver has noted about the last swap."""
        return noted(self.host, self.id, disk)

    def journal(self, disk):
        """Path of what exists while a new volume is being filled."""
        return (self.host.directory / _VOLUMES / 'watches'
                / ('%s.%s.journal' % (self.id, disk)))

    def block_job(self, disk):
        """Return what libvirt says of the copy of a disk, '' if none."""
        done = self.host.run(['virsh', 'blockjob', self.id, disk],
                             check=False)
        # Progress is on standard error.
        return (done.stdout + done.stderr).strip()

    def disk_path(self, disk):
        """Return the file that QEMU has for a disk."""
        for line in self.host.run(
                ['virsh', '-q', 'domblklist', self.id]).stdout.splitlines():
            name, path = line.split(None, 1)
            if name == disk:
                return path
        raise errors.LabError('the guest has no disk %s' % disk)

    def unsettled(self, disk):
        """Yield what is not as it is after a swap that has ended."""
        volume = self._storage.get_volume(self.volumes()[disk])
        if volume.status != 'in-use':
            yield 'the volume is %s' % volume.status
        if volume.migration_status not in (None, 'success', 'error'):
            yield 'its migration is %s' % volume.migration_status
        if len(volume.attachments) != 1:
            yield 'it has %d attachments' % len(volume.attachments)
        attached = [one for one in self._storage.attachments(
            all_projects=True) if one.instance == self.id]
        if len(attached) != len(self.volumes()):
            yield 'the instance has %d attachments' % len(attached)
        ours = {one.attachment_id for one in client.connect(
            self.cloud).compute.volume_attachments(self.id)}
        if ours != {one.id for one in attached}:
            yield 'Nova and Cinder have other attachments'
        if self.disk_path(disk).rpartition('/')[2] != self.file(
                volume.id)[1].name:
            yield 'QEMU has %s, and Cinder %s' % (
                self.disk_path(disk), self.file(volume.id)[1].name)
        info = self.host.run(['virsh', 'dominfo', self.id]).stdout
        if 'Persistent:     yes' not in info:
            yield 'the guest is not defined in libvirt'
        if self.block_job(disk) not in ('', 'No current block job for %s'
                                        % disk):
            yield 'a copy goes on: %s' % self.block_job(disk)
        if faults.domain_state(self.host, self.id) != 'running':
            yield 'the guest is %s' % faults.domain_state(self.host, self.id)
        kept = [one.id for one in self._storage.volumes(all_projects=True)
                if one.id not in self.volumes().values()]
        if kept:
            yield 'volumes are left: %s' % ', '.join(kept)

    @staticmethod
    def _wait(otherwise, ready, limit):
        deadline = time.monotonic() + limit
        while not ready():
            if time.monotonic() > deadline:
                raise errors.LabError('%s after %.0f s' % (otherwise, limit))
            time.sleep(0.3)


def known(path):
    """Return the share of blocks that a file of fingerprints has."""
    try:
        data = path.read_bytes()[fingerprints.FIRST:]
    except FileNotFoundError:
        return 0.0
    entries = numpy.frombuffer(data, 'u1').reshape(-1, fingerprints.ENTRY)
    return float(entries.any(axis=1).mean()) if len(entries) else 0.0


def different(one, other):
    """Compare all bytes of two files; a sentence, '' if they are equal."""
    sizes = [path.stat().st_size for path in (one, other)]
    if sizes[0] != sizes[1]:
        return 'the new file has %d bytes instead of %d' % (
            sizes[1], sizes[0])
    found = []
    with open(one, 'rb') as first, open(other, 'rb') as second:
        for offset in range(0, sizes[0], _COMPARED):
            if first.read(_COMPARED) != second.read(_COMPARED):
                found.append(offset)
    return '' if not found else (
        '%d of %d blocks of %d bytes differ, at %s' % (
            len(found), -(-sizes[0] // _COMPARED), _COMPARED,
            ', '.join(map(str, found[:16]))))


def noted(host, server, disk):
    """Return what the driver of a host has noted about the last swap.

    :returns: operations.Swap, None if there was none
    """
    path = host.directory / _VOLUMES / 'swaps' / ('%s.%s.json' % (server,
                                                                  disk))
    return (operations.Swap(**json.loads(path.read_text()))
            if path.exists() else None)
