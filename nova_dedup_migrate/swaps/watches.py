# SPDX-License-Identifier: Apache-2.0
"""What is recorded about volumes, from a moment on.

::

    watch: QEMU records writes; at first all bits are set
    the reader, slowly and again and again (swaps.reading):
        (1) empties the entries of a range in the file of fingerprints
        (2) clears the bits of the range
        (3) reads it
        (4) writes the entries
    ...
    of a block whose bit is clear the entry is right, if there is one

A write before (2) was complete before it, so (3) has read it.  A write after
(2) has set its bit.  So it does not matter when a backup was begun, or what
it is of: a block whose SHA-256 the backup has is as in the backup.

A record is a file for each disk, beside that of its fingerprints.  It names
the watch of QEMU by its token, so one that QEMU does not know is worth
nothing.  It is written after both; without it neither is used.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import json
import os
import pathlib
import re

from nova_dedup_migrate.backups import objects
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import fingerprints

#: Bytes of a record.
_MAX_RECORD = 1 << 12
_FINGERPRINTS = '.fingerprints'
_SAFE = re.compile(r'[\w-]{1,128}')


@dataclasses.dataclass(frozen=True)
class Record:
    """One watch.

    :ivar instance: UUID
    :ivar disk: name of the disk in the guest's definition, such as 'vdb'
    """

    instance: str
    disk: str
    volume_id: str
    token: str

    def refusal(self, backup: objects.DedupBackup) -> str:
        """Return why a backup is not to be used, or ''."""
        return ('' if backup.volume_id == self.volume_id
                else 'it is of another volume')


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
            record = Record(**json.loads(data))
        except (OSError, ValueError, TypeError):
            return None
        if (not all(isinstance(value, str)
                    for value in dataclasses.astuple(record))
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
        """Remove a record and what is known of the volume."""
        for path in (self._path(instance, disk),
                     self.fingerprints(instance, disk)):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def sweep(self) -> None:
        """Remove the fingerprints that have no record."""
        for path in self._directory.glob('*' + _FINGERPRINTS):
            if not path.with_suffix('.json').exists():
                with contextlib.suppress(OSError):
                    path.unlink()

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield (instance, disk) of each record."""
        for path in sorted(self._directory.glob('*.json')):
            instance, _, disk = path.stem.rpartition('.')
            yield instance, disk

    def journal(self, instance: str, disk: str) -> str:
        """Return the path of the journal of a disk that is filled."""
        return str(self._path(instance, disk).with_suffix('.journal'))

    def fingerprints(self, instance: str, disk: str) -> str:
        """Return the path of what is known of a disk."""
        return str(self._path(instance, disk).with_suffix(_FINGERPRINTS))

    def begin(self, guest: hypervisor.Guest, device: str, instance: str,
              disk: str, volume_id: str) -> Record:
        """Have QEMU record the writes to a disk from now on.

        :param device: as Guest.disks names it
        :raises HypervisorError: QEMU does not do it
        :raises NotFillable: it does, but not of whole blocks
        :raises OSError: there is no place for what is to be known of it
        """
        # Nothing of an earlier watch may be taken for one of this.
        self.remove(instance, disk)
        watch = guest.watch_disk(device, recorder=watching.VOLUME)
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            fingerprints.Fingerprints.make(
                self.fingerprints(instance, disk), watch)
            record = Record(instance, disk, volume_id, watch.token)
            self.save(record)
        except BaseException:
            guest.drop_disk(watch.token)
            raise
        return record

    def _path(self, instance: str, disk: str) -> pathlib.Path:
        if not _SAFE.fullmatch(instance) or not _SAFE.fullmatch(disk):
            raise errors.NotFillable(reason='the disk is named %.80r of %.80r'
                                     % (disk, instance))
        return self._directory / ('%s.%s.json' % (instance, disk))


def of(guest: hypervisor.Guest, token: str) -> watching.DiskWatch | None:
    """Return a watch that QEMU still has, with nothing in doubt."""
    return next((watch for watch in guest.disk_watches()
                 if watch.token == token
                 and watch.state == watching.WATCHING), None)
