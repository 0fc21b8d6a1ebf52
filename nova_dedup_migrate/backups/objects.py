# SPDX-License-Identifier: Apache-2.0
"""What clients and cinder-backup-assist send each other on the bus.

rpc.objects has the rules.  Times are ISO 8601, in UTC.
"""

from __future__ import annotations

from oslo_versionedobjects import base

from nova_dedup_migrate.rpc import fields
from nova_dedup_migrate.rpc import objects

#: Backups of one volume in an answer, the newest first.
MAX_BACKUPS = 1000
#: Daemons of a cloud.
MAX_HOSTS = 256
_HOST = r'[\w.:@#-]+'
#: Keystone's: a UUID without dashes, or what another driver makes of it.
_PROJECT = r'[\w.-]+'
_TICKET = '[0-9a-f]{64}'


@base.VersionedObjectRegistry.register
class DedupBackupFindRequest(objects.DedupObject):
    VERSION = '1.0'

    fields = {
        'volume_id': fields.UUIDField(),
        'project_id': fields.TextField(255, _PROJECT),
        # whose request it is
        'host': fields.TextField(255, _HOST),
    }


@base.VersionedObjectRegistry.register
class DedupBackup(objects.DedupObject):
    """A backup of a volume, as Cinder has it."""

    VERSION = '1.0'

    fields = {
        'backup_id': fields.UUIDField(),
        # of the volume that the backup was made of
        'volume_id': fields.UUIDField(),
        'status': fields.TextField(64),
        # of the volume, in bytes
        'size': fields.CountField(fields.MAX_OFFSET),
        # when the volume had this content
        'data_timestamp': fields.TextField(32),
        # backups that are read for it: 1 for a full one
        'chain_length': fields.CountField(1 << 20),
        # of the host of cinder-backup that made it
        'host': fields.TextField(255, default=''),
        # of a snapshot: older than the backup itself
        'of_snapshot': fields.FlagField(default=False),
        'usable': fields.FlagField(),
        # why it is not
        'reason': fields.TextField(objects.MAX_REASON, default=''),
    }


@base.VersionedObjectRegistry.register
class DedupBackupFindReply(objects.DedupObject):
    """:ivar backups: the newest first
    :ivar hosts: on which cinder-backup runs; a daemon may be beside it
    :ivar now: when backups was read, as their data_timestamp
    """

    VERSION = '1.0'

    fields = {
        'backups': fields.ObjectsField('DedupBackup', MAX_BACKUPS),
        'hosts': fields.TextsField(MAX_HOSTS, 255),
        'now': fields.TextField(32),
    }


@base.VersionedObjectRegistry.register
class DedupBackupOpenRequest(objects.DedupObject):
    VERSION = '1.0'

    fields = {
        'backup_id': fields.UUIDField(),
        'volume_id': fields.UUIDField(),
        'project_id': fields.TextField(255, _PROJECT),
        # the compute host that will connect; its certificate names it
        'host': fields.TextField(255, _HOST),
    }


@base.VersionedObjectRegistry.register
class DedupBackupTicket(objects.DedupObject):
    """Permission to read one backup over one connection."""

    VERSION = '1.0'

    fields = {
        # https://ADDRESS:PORT
        'url': fields.TextField(512, r'https://[^/\s]+'),
        'ticket': fields.TextField(64, _TICKET),
        # seconds in which the connection has to be made
        'lifetime': fields.NumberField(),
    }


@base.VersionedObjectRegistry.register
class DedupBackupCloseRequest(objects.DedupObject):
    VERSION = '1.0'

    fields = {'ticket': fields.TextField(64, _TICKET)}


@base.VersionedObjectRegistry.register
class DedupBackupLoad(objects.DedupObject):
    """How busy a daemon is: connections now, and at most."""

    VERSION = '1.0'

    fields = {
        'connections': fields.CountField(1 << 20),
        'limit': fields.CountField(1 << 20),
    }
