# SPDX-License-Identifier: Apache-2.0
"""What agents and nova-compute send each other about disks.

The rules are those of rpc.objects.
"""

from __future__ import annotations

from oslo_versionedobjects import base

from nova_dedup_migrate.rpc import fields
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.storage import blocks

#: Images of an instance that may be read for it.
MAX_IMAGES = 64
#: Public images of a cloud that an agent is told of.
MAX_PUBLIC = 4096
#: Hosts that are called for blocks.
MAX_NEIGHBOURS = 8
#: Sources of one disk.
MAX_SOURCES = 16
#: A project's ID, as Keystone makes it.
PROJECT = r'[0-9A-Za-z][\w.-]{0,254}'

#: How far a disk is; 'unknown' if the agent knows nothing of it.
STATES = ('running', 'done', 'failed', 'unknown')


@base.VersionedObjectRegistry.register
class DedupChannelRequest(objects.DedupObject):
    """A host is to connect to the data channel of another, once."""

    VERSION = '1.0'

    fields = {
        # the host that will connect
        'host': fields.TextField(255),
        'migration_uuid': fields.UUIDField(),
        # whose content may be used: the instance's project and images
        'project_id': fields.TextField(255, PROJECT),
        'images': fields.TextsField(MAX_IMAGES, 36, default=[]),
        # the disk whose manifest is wanted; None: blocks by digest
        'target': fields.optional(fields.TextField, 64),
    }


@base.VersionedObjectRegistry.register
class DedupChannelOffer(objects.DedupObject):
    VERSION = '1.0'

    fields = {
        # the name in the certificate
        'host': fields.TextField(255),
        'address': fields.TextField(255),
        'port': fields.CountField(65535),
        'ticket': fields.TextField(64, objects.HEX_256),
    }


@base.VersionedObjectRegistry.register
class DedupImageFile(objects.DedupObject):
    """An image file or block device of the destination."""

    VERSION = '1.0'

    fields = {
        'path': fields.TextField(objects.MAX_PATH),
        'format': fields.ChoiceField(*blocks.FORMATS),
    }


@base.VersionedObjectRegistry.register
class DedupFillRequest(objects.DedupObject):
    """Build a disk at the destination."""

    VERSION = '1.0'

    fields = {
        'instance_uuid': fields.UUIDField(),
        'migration_uuid': fields.UUIDField(),
        'project_id': fields.TextField(255, PROJECT),
        'images': fields.TextsField(MAX_IMAGES, 36, default=[]),
        # of the disk, 'vda'
        'target': fields.TextField(64),
        'image': fields.ObjectField('DedupImageFile'),
        # the backing files of image, the top one first
        'backing': fields.ObjectsField('DedupImageFile', objects.MAX_CHAIN,
                                       default=[]),
        'size': fields.CountField(fields.MAX_OFFSET),
        # bytes of a bit of the bitmap of the source's QEMU
        'granularity': fields.CountField(1 << 30, default=64 << 10),
        # names that bitmap
        'watch': fields.TextField(64, objects.HEX_256),
        # the host whose agent has the manifest
        'source': fields.TextField(255),
        # whether that agent sends blocks as well
        'source_blocks': fields.FlagField(default=False),
        # hosts whose agents are called for blocks
        'neighbours': fields.TextsField(MAX_NEIGHBOURS, 255, default=[]),
        # whether the file may have the content already
        'reuse': fields.FlagField(default=False),
        'seconds': fields.NumberField(default=3600.0),
    }


@base.VersionedObjectRegistry.register
class DedupFillingRequest(objects.DedupObject):
    """Which disk of which migration."""

    VERSION = '1.0'

    fields = {
        'migration_uuid': fields.UUIDField(),
        'target': fields.TextField(64),
        # how long to wait for the end
        'wait': fields.NumberField(default=0.0),
    }


@base.VersionedObjectRegistry.register
class DedupSourceBytes(objects.DedupObject):
    """Bytes that one source has given, proven."""

    VERSION = '1.0'

    fields = {
        'name': fields.TextField(64),
        'bytes': fields.CountField(),
    }


@base.VersionedObjectRegistry.register
class DedupFillingReply(objects.DedupObject):
    """How far a disk is."""

    VERSION = '1.0'

    fields = {
        'state': fields.ChoiceField(*STATES),
        'reason': fields.TextField(objects.MAX_REASON, default=''),
        # blocks of this pass that were dealt with, of all
        'done': fields.CountField(default=0),
        'total': fields.CountField(default=0),
        'sources': fields.ObjectsField('DedupSourceBytes', MAX_SOURCES,
                                       default=[]),
        'seconds': fields.NumberField(default=0.0),
    }


@base.VersionedObjectRegistry.register
class DedupPublicImages(objects.DedupObject):
    """All public images of the cloud."""

    VERSION = '1.0'

    fields = {
        'images': fields.TextsField(MAX_PUBLIC, 36),
    }
