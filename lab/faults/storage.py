# SPDX-License-Identifier: Apache-2.0
"""Storage that hangs, fails, or is full."""

import contextlib
import dataclasses
import os
import signal

from lab import errors
from lab.faults import programs
from lab.faults.fault import Fault
from lab.services import gluster

#: What fills a host's own file systems: libvirt's and QEMU's files.
_FULL = ('/var/lib/libvirt/qemu', '/var/log/libvirt/qemu')
_INSTANCES = '/var/lib/nova/instances'
#: Of a file system of its own: its image, sparse, and its bytes.
_IMAGE = 'instances.img'
_SIZE = 32 << 30
#: What fills it; and bytes that are left, for what is no data.
_FILLER = 'filler'
_LEFT = 1 << 20


@dataclasses.dataclass(frozen=True)
class Nas(Fault):
    """The NAS does not serve files for a while.

    Its program is stopped, for less time than its clients wait: they hang.
    Or it is killed: they have errors, as soon as they notice.

    :ivar number: the signal
    """

    number: int = signal.SIGSTOP

    def fits(self, settings):
        return settings.has_nas

    def inject(self, scene):
        found = [one for one in scene.cloud.host('nas').processes()
                 if b'glusterfsd' in programs.command_line(one.pid)[0]]
        if not found:
            raise errors.LabError('the NAS serves no files')
        for process in found:
            process.send(self.number)
        return ''

    def undo(self, scene):
        host = scene.cloud.host('nas')
        for process in host.processes():
            if b'glusterfsd' in programs.command_line(process.pid)[0]:
                process.send(signal.SIGCONT)
        gluster.start_volume(scene.cloud, host)


@dataclasses.dataclass(frozen=True)
class ReadErrors(Fault):
    """The NAS answers at once, whatever is read with an error."""

    def fits(self, settings):
        return settings.has_nas

    def inject(self, scene):
        gluster.fail_reads(scene.cloud, scene.cloud.host('nas'), True)
        return ''

    def undo(self, scene):
        gluster.fail_reads(scene.cloud, scene.cloud.host('nas'), False)


@dataclasses.dataclass(frozen=True)
class DiskFull(Fault):
    """The destination cannot write files.

    A file system that is full is mounted over the directories of libvirt.
    Disks are not hidden: what Nova removes meanwhile has to be gone
    afterwards.  So theirs is filled.
    """

    def around(self, cloud):
        return (_own_file_systems(cloud) if _is_local(cloud)
                else contextlib.nullcontext())

    def inject(self, scene):
        host = scene.destination
        for directory in _FULL:
            # an inode for its root alone, and no byte
            host.run(['mount', '-t', 'tmpfs', '-o', 'size=4k,nr_inodes=1',
                      'full', directory])
        if _is_local(scene.cloud):
            found = os.statvfs(_instances(host))
            host.run(['fallocate', '--length',
                      found.f_bavail * found.f_frsize - _LEFT,
                      os.path.join(_INSTANCES, _FILLER)])
        return ''

    def undo(self, scene):
        host = scene.destination
        (_instances(host) / _FILLER).unlink(missing_ok=True)
        for directory in _FULL:
            host.run(['umount', '--lazy', directory], check=False)


def _is_local(cloud):
    """Whether disks are on the compute hosts."""
    return cloud.settings.profile == 'local'


def _instances(host):
    """Return the directory as the machine sees it."""
    return host.root / _INSTANCES.lstrip('/')


@contextlib.contextmanager
def _own_file_systems(cloud):
    """Have each compute host's disks in a file system of its own.

    Only that can be full, and not the machine's.

    :raises LabError: an instance would be hidden
    """
    with contextlib.ExitStack() as stack:
        for host in cloud.computes:
            if any(_instances(host).glob('*-*-*-*-*')):
                raise errors.LabError(
                    '%s has instances: delete them, or leave out '
                    'disk-full-destination' % host.name)
            # of a campaign that was killed
            host.run(['umount', '--lazy', _INSTANCES], check=False)
            image = host.directory / _IMAGE
            image.unlink(missing_ok=True)
            stack.callback(image.unlink, missing_ok=True)
            with image.open('wb') as file:
                file.truncate(_SIZE)
            # few inodes: they take space of the machine
            host.run(['mkfs.ext4', '-q', '-F', '-m', '0', '-T', 'largefile4',
                      image])
            host.run(['mount', '-o', 'loop', image, _INSTANCES])
            stack.callback(host.run, ['umount', '--lazy', _INSTANCES],
                           check=False)
        yield


FAULTS = (
    Nas('nas-hangs', 8.0),
    Nas('nas-hangs-long', 30.0),
    Nas('nas-fails', 10.0, number=signal.SIGKILL),
    ReadErrors('nas-read-errors', 10.0),
    DiskFull('disk-full-destination', 30.0),
)
