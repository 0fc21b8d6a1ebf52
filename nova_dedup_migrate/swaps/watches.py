# SPDX-License-Identifier: Apache-2.0
"""What is recorded about volumes from a time before their next backup.

::

    watch: QEMU records writes; all bits are cleared      (1)
    the backups that exist now are noted                  (2)
    ...
    Cinder makes a backup: it reads the volume            (3)
    ...
    a block whose bit is clear is as the backup has it

A write before (1) was complete before it, so (3) has read it.  A write
after (1) has set its bit.  That (3) comes after (1) is certain if the
backup was not among those noted at (2): its record is younger than the
watch, and its reading is younger than its record.  This does not depend
on clocks.  Backups of snapshots may be older than their record, and are
never used; of those imported, whose record is younger than what they hold,
the time is compared as well.

A record is a file for each disk.  It names the watch of QEMU by its token,
so one that QEMU does not know is worth nothing.  It is written after the
watch; without it the watch is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import json
import os
import pathlib
import re
from typing import Any

from nova_dedup_migrate.backups import objects
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.swaps import errors

#: Share of a volume that is written to after which a watch is begun anew:
#: a later backup is then worth more than the next one.
WORN = 0.5
#: Bytes of a record.
_MAX_RECORD = 1 << 20
_SAFE = re.compile(r'[\w-]{1,128}')


@dataclasses.dataclass(frozen=True)
class Record:
    """One watch.

    :ivar instance: UUID
    :ivar disk: name of the disk in the guest's definition, such as 'vdb'
    :ivar known: backups that may have been begun before the watch
    :ivar since: time of the control plane, as data_timestamp of backups
    """

    instance: str
    disk: str
    volume_id: str
    token: str
    known: tuple[str, ...]
    since: str

    def refusal(self, backup: objects.DedupBackup) -> str:
        """Return why a backup says nothing about the volume now, or ''."""
        if backup.backup_id in self.known:
            return 'it was begun before writes were recorded'
        if backup.of_snapshot:
            return 'it is of a snapshot, which is older than itself'
        if backup.volume_id != self.volume_id:
            return 'it is of another volume'
        if backup.data_timestamp < self.since:
            return ('it is of %s, and writes are recorded since %s'
                    % (backup.data_timestamp, self.since))
        return ''


class Records:
    """The records of a host.

    :param directory: of the files
    """

    def __init__(self, directory: str) -> None:
        self._directory = pathlib.Path(directory)

    def load(self, instance: str, disk: str) -> Record | None:
        """Return a record, None if there is none that can be used."""
        try:
            with open(self._path(instance, disk), 'rb') as file:
                data = file.read(_MAX_RECORD + 1)
            found: Any = json.loads(data)
            record = Record(**{**found, 'known': tuple(found['known'])})
        except (OSError, ValueError, TypeError, KeyError):
            return None
        wanted = [getattr(record, field.name)
                  for field in dataclasses.fields(Record)
                  if field.name != 'known']
        if (not all(isinstance(value, str)
                    for value in (*wanted, *record.known))
                or (record.instance, record.disk) != (instance, disk)):
            return None
        return record

    def save(self, record: Record) -> None:
        """Write a record; afterwards it is on the disk.

        :raises OSError:
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(record.instance, record.disk)
        new = path.with_suffix('.new')
        with open(new, 'w') as file:
            json.dump(dataclasses.asdict(record), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    def remove(self, instance: str, disk: str) -> None:
        with contextlib.suppress(OSError):
            self._path(instance, disk).unlink()

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield (instance, disk) of each record."""
        for path in sorted(self._directory.glob('*.json')):
            instance, _, disk = path.stem.rpartition('.')
            yield instance, disk

    def journal(self, instance: str, disk: str) -> str:
        """Return the path of the journal of a disk that is filled."""
        return str(self._path(instance, disk).with_suffix('.journal'))

    def _path(self, instance: str, disk: str) -> pathlib.Path:
        if not _SAFE.fullmatch(instance) or not _SAFE.fullmatch(disk):
            raise errors.NotFillable(reason='the disk is named %.80r of %.80r'
                                     % (disk, instance))
        return self._directory / ('%s.%s.json' % (instance, disk))


def begin(guest: hypervisor.Guest, device: str, find: Any
          ) -> tuple[watching.DiskWatch, objects.DedupBackupFindReply]:
    """Have QEMU record the writes to a disk from now on.

    :param find: returns the backups of the volume
    :raises HypervisorError: QEMU does not do it
    :raises BackupError: the backups are not known
    """
    watch = guest.watch_disk(device, recorder=watching.VOLUME)
    try:
        guest.clear_disk(watch.token, 0, watch.size)
        # Only now: one that is begun in between must be known.
        return watch, find()
    except BaseException:
        guest.drop_disk(watch.token)
        raise


def of(guest: hypervisor.Guest, token: str) -> watching.DiskWatch | None:
    """Return a watch that QEMU still has, with nothing in doubt."""
    return next((watch for watch in guest.disk_watches()
                 if watch.token == token
                 and watch.state == watching.WATCHING), None)


def is_worn(watch: watching.DiskWatch) -> bool:
    """Return whether so much was written that a new watch is better."""
    return watch.dirty > WORN * watch.size
