# SPDX-License-Identifier: Apache-2.0
"""What nova-compute and agents send each other about the image store.

The rules are those of rpc.objects.
"""

from __future__ import annotations

from oslo_versionedobjects import base

from nova_dedup_migrate.rpc import fields
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import watch_objects

#: Images of the image store that are read for one disk.
MAX_STORED = 8
#: Characters of an endpoint, and of a token: Keystone's have some hundred,
#: those of other issuers up to some thousand.
MAX_ENDPOINT = 1024
MAX_TOKEN = 16384


@base.VersionedObjectRegistry.register
class DedupStoredImage(objects.DedupObject):
    """A raw image of the image store."""

    VERSION = '1.0'

    fields = {
        'image': fields.UUIDField(),
        'size': fields.CountField(fields.MAX_OFFSET),
    }


@base.VersionedObjectRegistry.register
class DedupImageStore(objects.DedupObject):
    """The image store, and what of it may be read for one disk."""

    VERSION = '1.0'

    fields = {
        # without the version
        'endpoint': fields.TextField(
            MAX_ENDPOINT, r'https?://[\w.:\[\]%-]+(/[\w./~-]*)?'),
        # of the user who migrates; never in logs, reports or files
        'token': fields.SecretField(MAX_TOKEN, '[!-~]+'),
        # the newest first
        'images': fields.ObjectsField('DedupStoredImage', MAX_STORED),
    }


@base.VersionedObjectRegistry.register
class DedupDiskSample(objects.DedupObject):
    """The sample that was read of a disk when it was watched."""

    VERSION = '1.0'

    fields = {
        'digests': fields.TextsField(watch_objects.MAX_SAMPLE, 64),
        # of the same blocks
        'offsets': fields.CountsField(watch_objects.MAX_SAMPLE,
                                      fields.MAX_OFFSET),
    }


@base.VersionedObjectRegistry.register
class DedupTryImagesRequest(objects.DedupObject):
    """How much of a sample do images of the image store have?"""

    VERSION = '1.0'

    fields = {
        'store': fields.ObjectField('DedupImageStore'),
        'sample': fields.ObjectField('DedupDiskSample'),
        # of the disk
        'size': fields.CountField(fields.MAX_OFFSET),
    }


@base.VersionedObjectRegistry.register
class DedupTryImagesReply(objects.DedupObject):
    """What was found by reading them."""

    VERSION = '1.0'

    fields = {
        # blocks that were looked for, and that an image has
        'tried': fields.CountField(watch_objects.MAX_SAMPLE),
        'found': fields.CountField(watch_objects.MAX_SAMPLE),
        # images that have some of them
        'images': fields.TextsField(MAX_STORED, 36, default=[]),
        # bytes a second of large reads at a time; None: not measured
        'rate': fields.optional(fields.NumberField),
        # why some images were not read
        'reason': fields.TextField(objects.MAX_REASON, default=''),
    }
