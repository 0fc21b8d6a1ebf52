# SPDX-License-Identifier: Apache-2.0
"""What the agent of the source is asked, and says, about its guests.

The rules are those of rpc.objects.
"""

from __future__ import annotations

from oslo_versionedobjects import base

from nova_dedup_migrate.rpc import fields
from nova_dedup_migrate.rpc import objects

MAX_WINDOWS = 16


@base.VersionedObjectRegistry.register
class DedupSurveyRequest(objects.DedupObject):
    """What is known about a guest of the host, and a link from it."""

    VERSION = '1.0'

    fields = {
        'instance_uuid': fields.UUIDField(),
        # host whose link is asked for; None: none
        'destination': fields.optional(fields.TextField, 255),
        # an older sample is replaced by a new one
        'max_age': fields.NumberField(),
        # how long the caller waits for the answer
        'budget': fields.NumberField(default=5.0),
    }


@base.VersionedObjectRegistry.register
class DedupDiskHints(objects.DedupObject):
    """Guest pages that are said to hold the content of one disk."""

    VERSION = '1.0'

    fields = {
        # QEMU's path of the device, as x-dedup-arm takes it
        'device': fields.TextField(objects.MAX_DEVICE),
        'pages': fields.CountField(),
        # pages whose block was read and compared, and that agreed
        'sampled': fields.CountField(default=0),
        'valid': fields.CountField(default=0),
    }


@base.VersionedObjectRegistry.register
class DedupWrittenIn(objects.DedupObject):
    """What a guest writes to in a time; see planner.working_set.Window."""

    VERSION = '1.0'

    fields = {
        'seconds': fields.NumberField(),
        'bytes': fields.NumberField(),
        'most': fields.NumberField(),
        'age': fields.NumberField(),
    }


@base.VersionedObjectRegistry.register
class DedupSurveyReply(objects.DedupObject):
    """A sample of a guest; a figure that is None was not to be had."""

    VERSION = '1.0'

    fields = {
        # False: there is no sample of the guest, and why; only the link's
        # fields hold then
        'known': fields.FlagField(),
        'reason': fields.TextField(objects.MAX_REASON, default=''),
        # of the sample
        'age': fields.NumberField(default=0.0),
        'dirty_rate': fields.optional(fields.NumberField),
        'disk_write_rate': fields.optional(fields.NumberField),
        # bytes of memory that are not zero, and the standard error
        'in_use': fields.optional(fields.NumberField),
        'in_use_error': fields.optional(fields.NumberField),
        # empty if QEMU does not count by disk
        'hints': fields.ObjectsField('DedupDiskHints', objects.MAX_DISKS,
                                     default=[]),
        # pages with a hint to any disk
        'hint_pages': fields.CountField(default=0),
        # pages known from a page-cache map
        'map_pages': fields.CountField(default=0),
        # empty if it was not measured
        'windows': fields.ObjectsField('DedupWrittenIn', MAX_WINDOWS,
                                       default=[]),
        # to the destination; None: not known, and link_reason why
        'link_rate': fields.optional(fields.NumberField),
        'link_age': fields.optional(fields.NumberField),
        'link_reason': fields.TextField(objects.MAX_REASON, default=''),
    }
