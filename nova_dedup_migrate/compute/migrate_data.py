# SPDX-License-Identifier: Apache-2.0
"""What an operation keeps of Nova's: ``Durable.data`` of a live migration.

::

    block_migration  as Nova's driver gets it
    migrate_data     LibvirtLiveMigrateData as oslo.versionedobjects writes
                     it, without what is secret or in Nova's database
    volumes          {volume: its attachment of the source}
    vm_state         of the instance before recovery set ERROR

Nova keeps this in memory alone; here it outlives the process.  Credentials
of volumes are read from Cinder again, and the secret of a vTPM is not
needed any more: only whether there is one.
"""

from __future__ import annotations

import typing

from nova import objects
from nova.objects import base as objects_base

_DATA, _CHANGES = 'nova_object.data', 'nova_object.changes'
_SECRET = 'vtpm_secret_value'
#: Of LibvirtLiveMigrateData: what the destination needed to begin, with
#: credentials, and the record that the database has.
_NOT_KEPT = ('bdms', 'migration', _SECRET)


def encode(data: objects.LibvirtLiveMigrateData, block_migration: bool,
           attachments: dict[str, str]) -> dict[str, typing.Any]:
    """Return Durable.data.

    :param attachments: {volume: its attachment of the source}
    """
    primitive = data.obj_to_primitive()
    values = {name: value for name, value in primitive[_DATA].items()
              if name not in _NOT_KEPT}
    if _SECRET in primitive[_DATA]:
        # LibvirtLiveMigrateData.has_vtpm is whether it is set.
        values[_SECRET] = None
    primitive[_DATA] = values
    # of no use, and it names them
    primitive.pop(_CHANGES, None)
    return {'block_migration': bool(block_migration),
            'migrate_data': primitive, 'volumes': attachments}


def decode(kept: dict[str, typing.Any]) -> objects.LibvirtLiveMigrateData:
    """Return the LibvirtLiveMigrateData of Durable.data.

    :raises ValueError: it is none
    """
    data = objects_base.NovaObject.obj_from_primitive(kept['migrate_data'])
    if not isinstance(data, objects.LibvirtLiveMigrateData):
        raise ValueError('migrate_data is a %s, not a '
                         'LibvirtLiveMigrateData' % type(data).__name__)
    return data


def volumes(kept: dict[str, typing.Any]) -> dict[str, str]:
    """Return {volume: its attachment of the source}."""
    return kept.get('volumes', {})


def is_block_migration(kept: dict[str, typing.Any]) -> bool:
    """Return what Nova's driver got as block_migration."""
    return bool(kept.get('block_migration'))


def address(kept: dict[str, typing.Any]) -> str | None:
    """Return the destination's address for migrations, None if not set."""
    return kept.get('migrate_data', {}).get(_DATA, {}).get(
        'target_connect_addr')
