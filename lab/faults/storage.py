# SPDX-License-Identifier: Apache-2.0
"""Storage that hangs, fails, or is full."""

import dataclasses
import signal

from lab import errors
from lab.faults import programs
from lab.faults.fault import Fault
from lab.services import gluster

#: What fills a host's own file systems: libvirt's and QEMU's files.
_FULL = ('/var/lib/libvirt/qemu', '/var/log/libvirt/qemu')
_INSTANCES = '/var/lib/nova/instances'


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

    A file system that is full is mounted over the directories it writes to.
    """

    def inject(self, scene):
        for directory in self._directories(scene):
            # an inode for its root alone, and no byte
            scene.destination.run([
                'mount', '-t', 'tmpfs', '-o', 'size=4k,nr_inodes=1', 'full',
                directory])
        return ''

    def undo(self, scene):
        for directory in self._directories(scene):
            scene.destination.run(['umount', '--lazy', directory], check=False)

    def _directories(self, scene):
        local = scene.cloud.settings.profile == 'local'
        return [*_FULL, *([_INSTANCES] if local else [])]


FAULTS = (
    Nas('nas-hangs', 8.0),
    Nas('nas-hangs-long', 30.0),
    Nas('nas-fails', 10.0, number=signal.SIGKILL),
    ReadErrors('nas-read-errors', 10.0),
    DiskFull('disk-full-destination', 30.0),
)
