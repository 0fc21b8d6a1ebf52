# SPDX-License-Identifier: Apache-2.0
"""What agents and nova-compute send each other.

Every object is versioned; tests/unit/rpc/test_objects.py pins the fields
of each version.  Every field is checked and capped where it is set, and
so also where it arrives.  An object that arrives without a field gets
the field's default, or is refused if there is none.

Sizes and offsets are in bytes, times in seconds, rates in bytes per
second.
"""

from __future__ import annotations

from typing import Any
from typing import TYPE_CHECKING

from oslo_versionedobjects import base

from nova_dedup_migrate.rpc import fields

#: Disks of an instance; libvirt's buses take more, Nova's flavors do not.
MAX_DISKS = 128
#: Images of a backing chain, the top one included.
MAX_CHAIN = 64
#: Linux's PATH_MAX.
MAX_PATH = 4096
#: Sentences for people.
MAX_REASON = 1024
#: Identifiers of one block device.
MAX_IDENTIFIERS = 16
#: Migrations to one host that are remembered.
MAX_MIGRATIONS = 1024
#: Guests of a host.
MAX_GUESTS = 4096
#: Replicas of one host.
MAX_REPLICAS = 1024
#: Characters of a report; one has some ten thousand.
MAX_REPORT = 2 * 1024 * 1024
#: 256 bits in hexadecimal.
HEX_256 = '[0-9a-f]{64}'

#: Kinds of images. What is neither is 'other': nothing is known about it.
KINDS = ('file', 'block', 'rbd', 'other')
#: Where the destination has the content of a disk: it opens the very
#: bytes the source has open, it has a disk of its own that this migration
#: can fill, or neither.
COPIES = ('shared', 'own', 'none')
#: Characters of QEMU's path of a disk's device.
MAX_DEVICE = 512
#: Where an instance is, as one host sees it.
#:
#: here
#:     This host has the guest: it runs, is paused, or has crashed and its
#:     QEMU stays.  In post-copy this is the destination from the switch
#:     on, "running (post-copy)", also while pages are missing and if the
#:     link breaks, "running" or "paused (post-copy failed)".
#: arriving
#:     A migration to this host has not switched over; the guest is still
#:     at its source.
#: none
#:     This host does not have the guest: there is no QEMU, or only that of
#:     a source which has switched to post-copy, "paused (post-copy)" or
#:     "paused (post-copy failed)".  Such a guest has left; it cannot
#:     continue here.
GUEST_STATES = ('here', 'arriving', 'none')


class DedupObject(base.VersionedObject):
    """Base of all; its names must not meet Nova's in nova-compute."""

    OBJ_SERIAL_NAMESPACE = 'nova_dedup_migrate_object'
    OBJ_PROJECT_NAMESPACE = 'nova_dedup_migrate'

    if TYPE_CHECKING:
        # The fields, which the registry makes properties of.
        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, context: Any = None, **kwargs: Any) -> None:
        super().__init__(context, **kwargs)
        if kwargs:
            self._complete()

    @classmethod
    def _obj_from_primitive(cls, context: Any, objver: str,
                            primitive: dict[str, Any]) -> DedupObject:
        self = super()._obj_from_primitive(context, objver, primitive)
        self._complete()
        return self

    def _complete(self) -> None:
        self.obj_set_defaults()
        missing = [name for name in self.fields
                   if not self.obj_attr_is_set(name)]
        if missing:
            raise ValueError('%s lacks %s' % (
                self.obj_name(), ', '.join(sorted(missing))))


@base.VersionedObjectRegistry.register
class DedupNodeClaim(DedupObject):
    """One image of a disk's backing chain, as the source has it open.

    What identifies it depends on its kind; see identity/answer.py.
    """

    VERSION = '1.0'

    fields = {
        'kind': fields.ChoiceField(*KINDS),
        # at the destination; 'pool/image' or 'pool/namespace/image' of rbd
        'path': fields.TextField(MAX_PATH),
        'size': fields.optional(fields.CountField, fields.MAX_OFFSET),
        # kind file: the name the file system gives it, and the file system
        'inode': fields.optional(fields.CountField),
        'filesystem': fields.optional(fields.TextField, MAX_PATH),
        # kind file: the byte the source holds a lock on
        'lock_offset': fields.optional(fields.CountField,
                                       fields.MAX_OFFSET - 1),
        # kind file: a file beside the image and what it holds
        'challenge_name': fields.optional(fields.TextField, 64, HEX_256),
        'challenge_content': fields.optional(fields.TextField, 64, HEX_256),
        # keyed digest of blocks of the image
        'samples': fields.optional(fields.TextField, 64, HEX_256),
        # kinds block and rbd: names that are unique in the world
        'identifiers': fields.TextsField(MAX_IDENTIFIERS, 256, default=[]),
        # kind rbd: how to log in
        'user': fields.optional(fields.TextField, 128, r'[\w.@-]+'),
        'secret': fields.optional(fields.UUIDField),
        # why the source cannot tell more
        'note': fields.TextField(MAX_REASON, default=''),
    }


@base.VersionedObjectRegistry.register
class DedupDiskQuery(DedupObject):
    """One disk of the instance: the top image first, the base last."""

    VERSION = '1.0'

    fields = {
        'target': fields.TextField(64),
        'chain': fields.ObjectsField('DedupNodeClaim', MAX_CHAIN),
    }


@base.VersionedObjectRegistry.register
class DedupFactsRequest(DedupObject):
    VERSION = '1.0'

    fields = {
        'instance_uuid': fields.UUIDField(),
        'migration_uuid': fields.UUIDField(),
        # the instance's emulator; None for libvirt's own choice
        'emulator': fields.optional(fields.TextField, MAX_PATH),
        'disks': fields.ObjectsField('DedupDiskQuery', MAX_DISKS,
                                     default=[]),
        # of the samples
        'sample_key': fields.optional(fields.TextField, 64, HEX_256),
        # whether to measure how fast storage is read
        'probe_storage': fields.FlagField(default=True),
        # how long the caller waits for the answer
        'budget': fields.NumberField(default=5.0),
    }


@base.VersionedObjectRegistry.register
class DedupNodeAnswer(DedupObject):
    """What the destination found out about one image."""

    VERSION = '1.0'

    fields = {
        'same': fields.FlagField(),
        # how it was proven, or why it was not
        'reason': fields.TextField(MAX_REASON, default=''),
    }


@base.VersionedObjectRegistry.register
class DedupDiskAnswer(DedupObject):
    VERSION = '1.0'

    fields = {
        'target': fields.TextField(64),
        'copy': fields.ChoiceField(*COPIES),
        # why it is what it is, always a sentence
        'reason': fields.TextField(MAX_REASON),
        'size': fields.optional(fields.CountField, fields.MAX_OFFSET),
        # reads of 1 MiB, eight at a time; None: not measured
        'storage_rate': fields.optional(fields.NumberField),
        # reads of 4 KiB at random offsets, eight at a time
        'scattered_rate': fields.optional(fields.NumberField),
        'chain': fields.ObjectsField('DedupNodeAnswer', MAX_CHAIN,
                                     default=[]),
    }


@base.VersionedObjectRegistry.register
class DedupFactsReply(DedupObject):
    VERSION = '1.0'

    fields = {
        # as the agent names itself
        'host': fields.TextField(255),
        # of this package
        'release': fields.TextField(64, default=''),
        # whether the destination's QEMU takes part, and why not
        'patched': fields.FlagField(),
        'qemu_version': fields.TextField(64, default=''),
        'reason': fields.TextField(MAX_REASON, default=''),
        # in the order of the request
        'disks': fields.ObjectsField('DedupDiskAnswer', MAX_DISKS,
                                     default=[]),
        # other migrations to this host that were announced by facts() and
        # are under way
        'incoming_migrations': fields.CountField(MAX_MIGRATIONS, default=0),
        # of the host, in the last minute on average; None: not known
        'idle_processors': fields.optional(fields.NumberField),
    }


@base.VersionedObjectRegistry.register
class DedupLinkRequest(DedupObject):
    """The source wishes to measure the link to the destination."""

    VERSION = '1.0'

    fields = {
        'source': fields.TextField(255),
        'seconds': fields.NumberField(),
        'bytes': fields.CountField(fields.MAX_OFFSET),
    }


@base.VersionedObjectRegistry.register
class DedupLinkOffer(DedupObject):
    """Where the source may push bytes, once, within seconds."""

    VERSION = '1.0'

    fields = {
        'address': fields.TextField(255),
        'port': fields.CountField(65535),
        'token': fields.TextField(64, HEX_256),
        # the limits the agent set
        'seconds': fields.NumberField(),
        'bytes': fields.CountField(fields.MAX_OFFSET),
    }


@base.VersionedObjectRegistry.register
class DedupIncomingRequest(DedupObject):
    VERSION = '1.0'

    fields = {
        'instance_uuid': fields.UUIDField(),
        'migration_uuid': fields.UUIDField(),
        # how long to wait for QEMU's event
        'wait': fields.NumberField(default=0.0),
    }


@base.VersionedObjectRegistry.register
class DedupIncomingReply(DedupObject):
    """The event X_DEDUP_INCOMING_DONE; counts of pages unless named."""

    VERSION = '1.0'

    fields = {
        # False: no event, and why; the figures are 0 then
        'known': fields.FlagField(),
        'reason': fields.TextField(MAX_REASON, default=''),
        'record_pages': fields.CountField(default=0),
        'fetched_pages': fields.CountField(default=0),
        'superseded_pages': fields.CountField(default=0),
        'nack_digest': fields.CountField(default=0),
        'nack_io': fields.CountField(default=0),
        'reads': fields.CountField(default=0),
        'bytes_read': fields.CountField(default=0),
        'read_ns': fields.CountField(default=0),
        'max_read_ns': fields.CountField(default=0),
        'backlog': fields.CountField(default=0),
    }


@base.VersionedObjectRegistry.register
class DedupGuestRequest(DedupObject):
    """Which instance a question is about."""

    VERSION = '1.0'

    fields = {
        'instance_uuid': fields.UUIDField(),
    }


@base.VersionedObjectRegistry.register
class DedupGuestReply(DedupObject):
    """Where an instance is, for who has asked libvirt, too."""

    VERSION = '1.0'

    fields = {
        # of the instance, as in the request
        'uuid': fields.UUIDField(),
        'state': fields.ChoiceField(*GUEST_STATES),
        # libvirt's number of the domain; None: it does not run
        'domain_id': fields.optional(fields.CountField, 2 ** 31 - 1),
        # libvirt's state and reason in words
        'reason': fields.TextField(MAX_REASON, default=''),
    }


@base.VersionedObjectRegistry.register
class DedupForgetRequest(DedupObject):
    """The migration that failed and whose remains are to be removed."""

    VERSION = '1.0'

    fields = {
        'instance_uuid': fields.UUIDField(),
        # as in the DedupFactsRequest that announced it
        'migration_uuid': fields.UUIDField(),
    }


@base.VersionedObjectRegistry.register
class DedupReport(DedupObject):
    """The report of a migration, from the host it leaves."""

    VERSION = '1.0'

    fields = {
        # as the agent names itself
        'host': fields.TextField(255),
        'migration_uuid': fields.UUIDField(),
        # grows with each change of the report
        'revision': fields.CountField(fields.MAX_OFFSET),
        # JSON in ASCII, as reports.codec encodes it
        'report': fields.TextField(MAX_REPORT),
    }


@base.VersionedObjectRegistry.register
class DedupGuestSample(DedupObject):
    """A guest of a host; a figure that is None was not to be had."""

    VERSION = '1.0'

    fields = {
        'uuid': fields.UUIDField(),
        # bytes it was given
        'memory': fields.CountField(fields.MAX_OFFSET),
        # whether QEMU records its I/O; the figures below are None if not
        'tracked': fields.FlagField(default=False),
        'age': fields.optional(fields.NumberField),
        'dirty_rate': fields.optional(fields.NumberField),
        'disk_write_rate': fields.optional(fields.NumberField),
        'in_use': fields.optional(fields.NumberField),
        'in_use_error': fields.optional(fields.NumberField),
        'hint_pages': fields.CountField(default=0),
        'map_pages': fields.CountField(default=0),
    }


@base.VersionedObjectRegistry.register
class DedupMigrationOptions(DedupObject):
    """How nova-compute of a host migrates; see planner.facts.Options."""

    VERSION = '1.0'

    fields = {
        'strategy': fields.TextField(32),
        'downtime_ms': fields.NumberField(),
        # live_migration_downtime_steps, and _delay: seconds for each GiB
        'downtime_steps': fields.CountField(10000, default=0),
        'downtime_delay': fields.optional(fields.NumberField),
        'adapt_downtime_limit': fields.FlagField(default=True),
        'max_extra_downtime_ms': fields.optional(fields.NumberField),
        'min_gain': fields.optional(fields.NumberField),
        # None: no limit
        'bandwidth': fields.optional(fields.NumberField),
        'post_copy': fields.FlagField(),
        'auto_converge': fields.FlagField(),
        # 0: none
        'timeout_per_gb': fields.NumberField(),
        'force_complete': fields.FlagField(),
    }


@base.VersionedObjectRegistry.register
class DedupHostReport(DedupObject):
    """A host, its guests and its QEMU, now and then."""

    VERSION = '1.0'

    fields = {
        # as the agent names itself
        'host': fields.TextField(255),
        # of this package
        'release': fields.TextField(64, default=''),
        # whether its QEMU takes part, and why not
        'patched': fields.FlagField(),
        'qemu_version': fields.TextField(64, default=''),
        'reason': fields.TextField(MAX_REASON, default=''),
        # max_concurrent_live_migrations; 0: no limit
        'max_outbound': fields.CountField(10000),
        # the best link that was measured
        'link_rate': fields.optional(fields.NumberField),
        'options': fields.ObjectField('DedupMigrationOptions'),
        'guests': fields.ObjectsField('DedupGuestSample', MAX_GUESTS),
        # reports that no engine has got yet
        'waiting_reports': fields.CountField(default=0),
        # of disks of other hosts' instances, see rpc.replica_objects
        'replicas': fields.ObjectsField('DedupReplica', MAX_REPLICAS,
                                        default=[]),
    }


def all_classes() -> dict[str, list[type[base.VersionedObject]]]:
    """Return every class of this module by name, for tests."""
    return {name: classes
            for name, classes in
            base.VersionedObjectRegistry.obj_classes().items()
            if issubclass(classes[0], DedupObject)}
