# SPDX-License-Identifier: Apache-2.0
"""What agents are sent about replicas.

The rules are those of rpc.objects.
"""

from __future__ import annotations

from oslo_versionedobjects import base

from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import fields
from nova_dedup_migrate.rpc import objects


@base.VersionedObjectRegistry.register
class DedupPrepareRequest(objects.DedupObject):
    """Build a replica of a disk, or bring it up to date."""

    VERSION = '1.0'

    fields = {
        # as for a migration, with a UUID of its own; image, backing and
        # reuse are set by the agent
        'fill': fields.ObjectField('DedupFillRequest'),
        # bytes of data of the disk, estimated
        'data': fields.CountField(fields.MAX_OFFSET),
        # seconds until it is removed
        'lease': fields.NumberField(),
    }


@base.VersionedObjectRegistry.register
class DedupTakeRequest(objects.DedupObject):
    """A migration is to begin with what a replica has."""

    VERSION = '1.0'

    fields = {
        'instance_uuid': fields.UUIDField(),
        'migration_uuid': fields.UUIDField(),
        'target': fields.TextField(64),
    }


@base.VersionedObjectRegistry.register
class DedupReplica(objects.DedupObject):
    """One replica."""

    VERSION = '1.0'

    fields = {
        'instance_uuid': fields.UUIDField(),
        'target': fields.TextField(64),
        'project_id': fields.TextField(255),
        # the host whose agent had the manifest
        'source': fields.TextField(255),
        'state': fields.ChoiceField(*disk_objects.STATES),
        'reason': fields.TextField(objects.MAX_REASON, default=''),
        'done': fields.CountField(default=0),
        'total': fields.CountField(default=0),
        'size': fields.CountField(fields.MAX_OFFSET),
        'allocated': fields.CountField(fields.MAX_OFFSET),
        # seconds since 1970
        'expires': fields.NumberField(),
        # the same, when it was begun to make it as it is; 0: never done
        'refreshed': fields.NumberField(default=0.0),
    }


@base.VersionedObjectRegistry.register
class DedupReplicas(objects.DedupObject):
    VERSION = '1.0'

    fields = {
        'replicas': fields.ObjectsField('DedupReplica', objects.MAX_REPLICAS,
                                        default=[]),
    }
