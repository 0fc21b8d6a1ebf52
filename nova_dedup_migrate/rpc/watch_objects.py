# SPDX-License-Identifier: Apache-2.0
"""What nova-compute and agents send each other about disks that are read.

The rules are those of rpc.objects.
"""

from __future__ import annotations

from oslo_versionedobjects import base

from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import fields
from nova_dedup_migrate.rpc import objects

#: Digests of a sample.
MAX_SAMPLE = 256


@base.VersionedObjectRegistry.register
class DedupWatchRequest(objects.DedupObject):
    """Record the writes to a disk of a guest of this host."""

    VERSION = '1.0'

    fields = {
        'instance_uuid': fields.UUIDField(),
        'migration_uuid': fields.UUIDField(),
        # of the disk, 'vda'
        'target': fields.TextField(64),
        # whether only the top image is copied
        'above_base': fields.FlagField(default=False),
        # for a replica: neither a migration nor, if it is to resume, another
        # replica loses its watch for it
        'replica': fields.FlagField(default=False),
        # the watch that the destination has a journal of: goes on if QEMU
        # has it still
        'resume': fields.optional(fields.TextField, 64, objects.HEX_256),
    }


@base.VersionedObjectRegistry.register
class DedupWatchReply(objects.DedupObject):
    """A disk that is watched, and a sample of it."""

    VERSION = '1.0'

    fields = {
        'state': fields.ChoiceField(*watching.STATES),
        'reason': fields.TextField(objects.MAX_REASON, default=''),
        'size': fields.CountField(fields.MAX_OFFSET),
        'granularity': fields.CountField(1 << 30),
        # names the bitmap, for the journal of the destination
        'watch': fields.TextField(64, objects.HEX_256),
        # see hypervisor.watching.DiskWatch
        'proven': fields.CountField(default=0),
        'dirty': fields.CountField(default=0),
        'written': fields.CountField(default=0),
        # bytes that are not zero and not only in the base, estimated
        'data': fields.CountField(default=0),
        # digests of some of these blocks, in hexadecimal
        'sample': fields.TextsField(MAX_SAMPLE, 64, default=[]),
    }


@base.VersionedObjectRegistry.register
class DedupHaveRequest(objects.DedupObject):
    """Which blocks the index of a host has."""

    VERSION = '1.0'

    fields = {
        'project_id': fields.TextField(255, disk_objects.PROJECT),
        'images': fields.TextsField(disk_objects.MAX_IMAGES, 36,
                                    default=[]),
        'digests': fields.TextsField(MAX_SAMPLE, 64),
    }
