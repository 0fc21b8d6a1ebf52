# SPDX-License-Identifier: Apache-2.0
"""What is to be known of a live migration until it is settled.

One file for each live migration that is under way from this host,
<state_path>/dedup_migrate/under-way/<migration UUID>.json.  Nova keeps in
memory alone what it takes to finish or roll back a live migration; here it
outlives the process, and errors in Nova's last steps.

Nothing secret is kept: credentials of volumes are asked of Cinder again.
"""

import dataclasses
import json
import os
import pathlib

from nova import exception
from nova import objects
from nova.objects import base as objects_base
from oslo_versionedobjects import exception as versioned

from nova_dedup_migrate.reports import errors as report_errors
from nova_dedup_migrate.reports import store

VERSION = 1
#: A file has some kilobytes; a larger one is none of ours.
MAX_BYTES = 1 << 20
_SUFFIX = '.json'
_ASIDE = '.aside'
_DATA, _CHANGES = 'nova_object.data', 'nova_object.changes'
#: Of LibvirtLiveMigrateData: what the destination needed to begin, with
#: credentials, and the record that the database has.
_NOT_KEPT = ('bdms', 'vtpm_secret_value', 'migration')
_NO_ENTRY = (OSError, ValueError, KeyError, TypeError, AttributeError,
             report_errors.ReportError, exception.NovaException,
             versioned.VersionedObjectsException)


class EntryDamaged(Exception):
    """A file that is no entry, and why."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A live migration that is under way.

    :ivar migration_uuid: Nova's
    :ivar instance_uuid: Nova's
    :ivar destination: host, as Nova knows it
    :ivar block_migration: as Nova's driver is told
    :ivar migrate_data: nova.objects.LibvirtLiveMigrateData
    """

    migration_uuid: str
    instance_uuid: str
    destination: str
    block_migration: bool
    migrate_data: object


class Journal:
    """The folder.

    :param path: of it; made when something is written
    """

    def __init__(self, path):
        self._path = pathlib.Path(path)

    def keep(self, entry):
        """Write an Entry.

        :raises OSError: it cannot be written
        """
        self._write(self._file(entry.migration_uuid), entry)

    def entries(self):
        """Return (entries, damaged): Entry objects, EntryDamaged errors."""
        found, damaged = [], []
        for path in sorted(self._path.glob('*' + _SUFFIX)):
            try:
                found.append(_decode(_read(path)))
            except FileNotFoundError:
                continue
            except _NO_ENTRY as error:
                damaged.append(EntryDamaged('%s: %s' % (path, error)))
        return found, damaged

    def forget(self, entry):
        """Remove an Entry; idempotent."""
        self._file(entry.migration_uuid).unlink(missing_ok=True)

    def tidy(self):
        """Remove what a process that was killed had not written to its end.

        Only before this process has a migration.

        :raises OSError: it cannot be removed
        """
        for path in self._path.glob('*' + _ASIDE):
            path.unlink(missing_ok=True)

    def _file(self, migration_uuid):
        return self._path / (store.checked(migration_uuid) + _SUFFIX)

    def _write(self, path, entry):
        self._path.mkdir(mode=0o750, parents=True, exist_ok=True)
        aside = path.with_suffix(_ASIDE)
        with aside.open('w') as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(_encode(entry))
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)


def _encode(entry):
    data = entry.migrate_data.obj_to_primitive()
    data[_DATA] = {name: value for name, value in data[_DATA].items()
                   if name not in _NOT_KEPT}
    # of no use, and it names them
    data.pop(_CHANGES, None)
    return json.dumps({
        'version': VERSION, 'migration_uuid': entry.migration_uuid,
        'instance_uuid': entry.instance_uuid,
        'destination': entry.destination,
        'block_migration': entry.block_migration, 'migrate_data': data},
        indent=1, default=str) + '\n'


def _read(path):
    with path.open('rb') as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError('it has more than %d bytes' % MAX_BYTES)
    return json.loads(data)


def _decode(values):
    if values['version'] != VERSION:
        raise ValueError('it is of version %.20r' % values['version'])
    data = objects_base.NovaObject.obj_from_primitive(
        values['migrate_data'])
    if not isinstance(data, objects.LibvirtLiveMigrateData):
        raise ValueError('it is not about a live migration')
    return Entry(store.checked(values['migration_uuid']),
                 store.checked(values['instance_uuid']),
                 str(values['destination']),
                 bool(values['block_migration']), data)
