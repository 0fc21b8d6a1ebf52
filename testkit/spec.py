# SPDX-License-Identifier: Apache-2.0
"""What a directly started guest is made of."""

import dataclasses
import os
import pathlib
import shutil

from nova_dedup_migrate.hypervisor import errors

DEVICES = ('virtio-blk', 'virtio-scsi', 'nvme', 'ide')


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk.

    :param path: image file
    :param format: raw or qcow2; never probed
    :param device: one of DEVICES.  QEMU cannot migrate nvme.
    :param id: of the device, default disk0, disk1 ...; the disk's node
        is named after it, with -format and -file appended
    :param iothread: give it an IOThread of its own
    :param cache: none (O_DIRECT) or writeback
    :param aio: threads, native or io_uring
    :param blockdev: -blockdev dictionaries to use instead of path and
        format, children first; the device gets the last one, which must
        have a node-name.  For throttle, blkdebug, nbd ...
    """

    path: pathlib.Path | None = None
    format: str = 'raw'
    device: str = 'virtio-blk'
    id: str | None = None
    iothread: bool = False
    cache: str = 'none'
    aio: str = 'threads'
    serial: str | None = None
    read_only: bool = False
    blockdev: tuple[dict, ...] = ()

    def __post_init__(self):
        _choice(self, 'format', ('raw', 'qcow2'))
        _choice(self, 'device', DEVICES)
        _choice(self, 'cache', ('none', 'writeback'))
        _choice(self, 'aio', ('threads', 'native', 'io_uring'))
        if (self.path is None) == (not self.blockdev):
            raise errors.OptionError(option='disk', value=self.path,
                                     reason='give a path or blockdev')
        if self.iothread and not self.device.startswith('virtio'):
            raise errors.OptionError(option='iothread', value=True,
                                     reason='%s has none' % self.device)
        if self.aio == 'native' and self.cache != 'none':
            raise errors.OptionError(option='aio', value=self.aio,
                                     reason='it needs cache none')
        if self.blockdev and 'node-name' not in self.blockdev[-1]:
            raise errors.OptionError(option='blockdev',
                                     value=self.blockdev[-1],
                                     reason='the last needs a node-name')


@dataclasses.dataclass(frozen=True)
class Channel:
    """A way for a program in the guest to talk to us.

    :param name: also the name of the virtio port in the guest
    :param device: uart (COM2 and on) or virtio-serial
    :param backend: file, which keeps what the guest wrote; or socket, a
        unix socket that QEMU listens on
    """

    name: str
    device: str = 'uart'
    backend: str = 'file'

    def __post_init__(self):
        _choice(self, 'device', ('uart', 'virtio-serial'))
        _choice(self, 'backend', ('file', 'socket'))


@dataclasses.dataclass(frozen=True)
class GuestSpec:
    """A guest; source and destination of a migration share it.

    :param binary: qemu-system-x86_64, a path or a name in PATH
    :param memory_mib: RAM in MiB
    :param machine: pc or q35, or a versioned name of these
    :param accel: tcg or kvm
    :param firmware: directory of the firmware, default QEMU's own
    :param memory_path: hugetlbfs mount or directory that backs RAM
    :param memory_share: map RAM shared
    :param channels: besides the console on COM1, which is always there
    :param extra_args: appended to the command line
    :param env: added to the environment
    """

    binary: str | os.PathLike
    name: str = 'guest'
    memory_mib: int = 256
    vcpus: int = 1
    machine: str = 'pc'
    accel: str = 'tcg'
    cpu: str | None = None
    kernel: pathlib.Path | None = None
    initrd: pathlib.Path | None = None
    append: str = ''
    disks: tuple[Disk, ...] = ()
    channels: tuple[Channel, ...] = ()
    firmware: pathlib.Path | None = None
    memory_path: pathlib.Path | None = None
    memory_share: bool = False
    extra_args: tuple[str, ...] = ()
    env: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        _choice(self, 'accel', ('tcg', 'kvm'))
        for option in ('memory_mib', 'vcpus'):
            value = getattr(self, option)
            if not isinstance(value, int) or value < 1:
                raise errors.OptionError(option=option, value=value,
                                         reason='expected 1 or more')
        if self.kernel is None and (self.initrd or self.append):
            raise errors.OptionError(option='kernel', value=None,
                                     reason='initrd and append need it')
        if len([c for c in self.channels if c.device == 'uart']) > 3:
            raise errors.OptionError(option='channels', value='uart',
                                     reason='a PC has four serial ports')
        ids = self.disk_ids()
        if len(set(ids)) != len(ids):
            raise errors.OptionError(option='disks', value=ids,
                                     reason='an id is used twice')

    def disk_ids(self):
        """Ids of the disk devices, in order."""
        return [disk.id or 'disk%d' % number
                for number, disk in enumerate(self.disks)]

    def check_host(self):
        """Check what can only be known on the host that starts it.

        :raises BinaryNotFound:
        :raises OptionError: /dev/kvm or a file is not usable
        :returns: path of the binary
        """
        binary = shutil.which(os.fspath(self.binary))
        if binary is None:
            raise errors.BinaryNotFound(binary=self.binary)
        if self.accel == 'kvm' and not os.access('/dev/kvm',
                                                 os.R_OK | os.W_OK):
            raise errors.OptionError(option='accel', value='kvm',
                                     reason='/dev/kvm cannot be opened')
        for path in (self.kernel, self.initrd,
                     *(disk.path for disk in self.disks)):
            if path is not None and not os.access(path, os.R_OK):
                raise errors.OptionError(option='path', value=str(path),
                                         reason='it cannot be read')
        return os.path.abspath(binary)


def _choice(owner, option, choices):
    value = getattr(owner, option)
    if value not in choices:
        raise errors.OptionError(
            option=option, value=value,
            reason='expected one of ' + ', '.join(choices))
