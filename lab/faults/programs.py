# SPDX-License-Identifier: Apache-2.0
"""Programs that are ended or stopped.

What was ended is started again, what was stopped goes on.  A QEMU that was
killed stays dead.  The destination's is waited for, and so is the daemon that
writes a disk which is built.
"""

from collections.abc import Callable
import dataclasses
import pathlib
import signal
import time

from lab import errors
from lab import topology
from lab.faults.fault import Fault
from lab.faults.fault import HAD_ARRIVED
from lab.faults.fault import HAD_LEFT
from lab.faults.fault import SIDES
from lab.services import nova
from lab.services import rabbitmq

_COMPUTE = 'nova-compute'
_LIBVIRTD = 'libvirtd'
_RABBITMQ = 'rabbitmq'
_QEMU = 'qemu'
#: Seconds after the request until the destination's QEMU, or the daemon, is
#: there.
_APPEARS_S = 60.0

_START: dict[str, Callable] = {
    _COMPUTE: nova.start_compute,
    nova.AGENT: nova.start_agent,
    _LIBVIRTD: lambda cloud, name: topology.libvirtd(cloud, name).start(),
    _RABBITMQ: lambda cloud, name: rabbitmq.start(cloud),
}


@dataclasses.dataclass(frozen=True)
class Program(Fault):
    """:ivar side: of SIDES, or control
    :ivar program: as it was started, or qemu, the instance's
    :ivar number: the signal
    """

    side: str = 'source'
    program: str = _COMPUTE
    number: int = signal.SIGKILL

    def _host(self, scene):
        return (scene.cloud.control if self.side == 'control'
                else scene.side(self.side))

    def inject(self, scene):
        host = self._host(scene)
        deadline = time.monotonic() + _APPEARS_S
        while not (found := self._found(host, scene)):
            if self.program == _QEMU and not self.survives:
                return HAD_LEFT
            if self.program != _QEMU or time.monotonic() > deadline:
                raise errors.LabError('%s: there is no %s on %s' % (
                    self.name, self.program, host.name))
            time.sleep(0.05)
        arrived = (self.program == _QEMU and self.survives
                   and domain_state(host, scene.server) == 'running')
        for process in found:
            process.send(self.number)
        return HAD_ARRIVED if arrived else ''

    def _found(self, host, scene):
        return (qemus(host, scene.server) if self.program == _QEMU
                else session(host, host.process(self.program)))

    def undo(self, scene):
        host = self._host(scene)
        if self.number == signal.SIGSTOP:
            for process in session(host, host.process(self.program)):
                process.send(signal.SIGCONT)
        elif self.program != _QEMU:
            host.process(self.program).wait(10)
            _START[self.program](scene.cloud, host.name)


@dataclasses.dataclass(frozen=True)
class DiskWriter(Fault):
    """The daemon that writes a disk at the destination is killed."""

    moments: tuple = ('before', 'preparing', 'filling')

    def fits(self, settings):
        return settings.builds_disks

    def inject(self, scene):
        deadline = time.monotonic() + _APPEARS_S
        while not (found := writers(scene.destination)):
            if scene.compute.get_server(scene.server).task_state is None:
                return 'too late'
            if time.monotonic() > deadline:
                raise errors.LabError('%s: no disk is written on %s' % (
                    self.name, scene.destination.name))
            time.sleep(0.05)
        for process in found:
            process.send(signal.SIGKILL)
        return ''


def _both(name, program, **values):
    return [Program('%s-%s' % (name, side), side=side, program=program,
                    **values) for side in SIDES]


FAULTS = (
    *_both('compute', _COMPUTE),
    # so late that the guest may have left before somebody looks
    *(Program('compute-%s-late' % side, 45.0, side=side) for side in SIDES),
    # longer than Nova waits for an answer
    Program('compute-destination-gone', 150.0, side='destination'),
    *_both('compute-hangs', _COMPUTE, number=signal.SIGSTOP,
           undo_after=45.0),
    *_both('libvirtd', _LIBVIRTD),
    *_both('agent', nova.AGENT),
    *_both('agent-hangs', nova.AGENT, number=signal.SIGSTOP,
           undo_after=45.0),
    Program('rabbitmq', side='control', program=_RABBITMQ),
    Program('rabbitmq-late', 20.0, side='control', program=_RABBITMQ),
    # longer than one question waits for its answer, so that steps fail
    Program('rabbitmq-gone', 150.0, side='control', program=_RABBITMQ),
    Program('qemu-source', survives=False, side='source', program=_QEMU),
    Program('qemu-destination', side='destination', program=_QEMU),
    DiskWriter('disk-writer'),
)


def session(host, leader):
    """Return a process that was started on a host, and its children.

    :param leader: Process, or None
    """
    if leader is None:
        return []
    return [one for one in host.processes()
            if _stat(one.pid)[3] == leader.pid]


def qemus(host, uuid):
    """Return the processes of an instance's QEMU on a host."""
    return [one for one in host.processes() if _is_qemu(one.pid, uuid)]


def writers(host):
    """Return the daemons that write disks which are built on a host."""
    return [one for one in host.processes()
            if b'qemu-storage-daemon' in command_line(one.pid)[0]]


def domain_state(host, uuid):
    """Return what libvirt says of a domain: its state, or an error."""
    done = host.run(['virsh', 'domstate', uuid], check=False)
    return done.stdout.strip() or done.stderr.strip()


def _is_qemu(pid, uuid):
    words = command_line(pid)
    return b'qemu-system' in words[0] and uuid.encode() in words


def command_line(pid):
    """Return the words of a process as bytes; [b''] if it is gone."""
    try:
        words = pathlib.Path('/proc/%d/cmdline' % pid).read_bytes()
    except OSError:
        return [b'']
    return words.split(b'\0')


def _stat(pid):
    """Fields of /proc/PID/stat from the state on; zeros if it is gone."""
    try:
        text = pathlib.Path('/proc/%d/stat' % pid).read_text(
            errors='replace')
    except OSError:
        return (0,) * 4
    fields = text.rsplit(')', 1)[1].split()
    return fields[0], *map(int, fields[1:4])
