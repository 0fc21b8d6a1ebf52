# SPDX-License-Identifier: Apache-2.0
"""Disks whose writes QEMU records, so that a mirror need not copy it all.

The commands x-dedup-disk-* and what they return; the fields and their
meaning are those of the QMP schema, qemu/src/qapi/dedup.json, with '_' for
'-'.  In what order they are used:

========================  =================================================
watch_disk                all of the disk is dirty
claim_disk                of a recorder's watch: before anybody writes to the
                          target of a mirror
clear_disk                of a range, always before it is read
                          (disk_export.exported)
arm_disk                  with the bitmap of what the target was proven to
                          hold as it was read, and a canary
a mirror job              copies the rest; all if anything is in doubt
disk_watches              what became of it
drop_disk                 forget it
========================  =================================================
"""

import base64
import dataclasses
import os
import typing

from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import errors

if typing.TYPE_CHECKING:
    from nova_dedup_migrate.hypervisor import qmp_guest

#: Bytes of a canary; its offset is a multiple.
CANARY = 512
WATCHING, ARMED, USED, DROPPED = STATES = (
    'watching', 'armed', 'used', 'dropped')
#: Who records writes without a mirror in view: of disks that have a replica,
#: and of volumes that have backups.
REPLICA, VOLUME = 'replica', 'volume'
#: MAX_SEEDS of QEMU.
_MAX_WATCHES = 128


@dataclasses.dataclass(frozen=True)
class DiskWatch:
    """DedupDiskInfo, sizes in bytes.

    :ivar token: names it in commands
    :ivar device: the disk, as Guest.disks names it
    :ivar state: one of STATES
    :ivar reason: why it was dropped, or why the last mirror did not use it
    :ivar recorder: REPLICA or VOLUME: mirrors ignore the watch; None: it is
        for the next mirror
    :ivar proven: what a mirror did not have to copy when it was armed
    :ivar dirty: what a mirror would copy now, or began with
    :ivar written: of dirty, what was proven and is written to since
    """

    token: str
    device: str
    node_name: str
    state: str
    size: int
    granularity: int
    reason: str | None = None
    recorder: str | None = None
    proven: int = 0
    dirty: int = 0
    written: int = 0

    @classmethod
    def from_qmp(cls, reply: object) -> 'DiskWatch':
        """Decode what watching, arming and each entry of a query return."""
        reply = decode.mapping(reply, 'DedupDiskInfo')
        for field in dataclasses.fields(cls):
            name = field.name.replace('_', '-')
            if field.default is dataclasses.MISSING and name not in reply:
                raise errors.MalformedReply(
                    field='DedupDiskInfo.' + name, value='missing',
                    expected='a value')
        found = decode.dataclass(cls, reply, 'DedupDiskInfo')
        if found.state not in STATES or not found.granularity:
            raise errors.MalformedReply(
                field='DedupDiskInfo', value=repr(reply)[:80],
                expected='a known state and a granularity')
        return found

    @property
    def granules(self) -> int:
        """How many bits a bitmap of the disk has."""
        return -(-self.size // self.granularity)

    @property
    def bitmap_bytes(self) -> int:
        return -(-self.granules // 8)


def watches(reply: object) -> tuple[DiskWatch, ...]:
    """Decode the answer of x-dedup-disk-query."""
    if not isinstance(reply, list) or len(reply) > 2 * _MAX_WATCHES:
        raise errors.MalformedReply(
            field='x-dedup-disk-query', value=repr(reply)[:80],
            expected='a list of %d watches at most' % (2 * _MAX_WATCHES))
    return tuple(map(DiskWatch.from_qmp, reply))


def arm(guest: 'qmp_guest.QmpGuest', token: str, proven: bytes,
        canary_offset: int, canary: bytes) -> DiskWatch:
    """See Guest.arm_disk."""
    return DiskWatch.from_qmp(_with_memfd(
        guest, 'x-dedup-disk-arm', 'proven', proven, token=token,
        canary={'offset': canary_offset,
                'data': base64.b64encode(canary).decode('ascii')})[0])


def dirty(guest: 'qmp_guest.QmpGuest', watch: DiskWatch) -> bytes:
    """See Guest.dirty_granules."""
    return _with_memfd(guest, 'x-dedup-disk-bitmap', 'fdname',
                       bytes(watch.bitmap_bytes), token=watch.token)[1]


def _with_memfd(guest: 'qmp_guest.QmpGuest', command: str, field: str,
                content: bytes, **arguments: object
                ) -> tuple[typing.Any, bytes]:
    """Run a command with a file in memory; return its reply and the file.

    :param field: the argument that names the file
    """
    fd = os.memfd_create(command)
    try:
        with open(fd, 'w+b', closefd=False) as file:
            file.write(content)
            file.flush()
            name = guest.pass_fd(fd, 'dedup-disk')
            reply = guest.consume_fd(command, field, name, **arguments)
            file.seek(0)
            return reply, file.read(len(content))
    finally:
        os.close(fd)
