# SPDX-License-Identifier: Apache-2.0
"""What can be done to a host of the lab while an instance migrates.

Each fault is struck at a process of the source or of the destination, and
mended after a while: what was ended is started again, what was stopped
goes on.  A QEMU that was killed stays dead.
"""

from collections.abc import Callable
import dataclasses
import pathlib
import signal

from lab import errors
from lab import topology
from lab.services import nova

_COMPUTE = 'nova-compute'
_LIBVIRTD = 'libvirtd'
_QEMU = 'qemu'
SIDES = ('source', 'destination')


@dataclasses.dataclass(frozen=True)
class Fault:
    """:ivar name: for the command line and the table
    :ivar side: of SIDES
    :ivar program: as it was started, or qemu, the instance's
    :ivar number: the signal
    :ivar mend_after: seconds
    :ivar survives: whether the instance has to run afterwards
    """

    name: str
    side: str
    program: str
    number: int = signal.SIGKILL
    mend_after: float = 2.0
    survives: bool = True

    def strike(self, host, uuid):
        """Do it.

        :param host: lab host of that side
        :param uuid: of the instance
        :raises LabError: there is nothing to strike at
        """
        if self.program == _QEMU:
            found = qemus(host, uuid)
        else:
            found = session(host, host.process(self.program))
        if not found:
            raise errors.LabError('%s: there is no %s on %s' % (
                self.name, self.program, host.name))
        for process in found:
            process.send(self.number)

    def mend(self, cloud, host):
        """Undo it."""
        if self.number == signal.SIGSTOP:
            for process in session(host, host.process(self.program)):
                process.send(signal.SIGCONT)
        elif self.program != _QEMU:
            host.process(self.program).wait(10)
            _START[self.program](cloud, host.name)


_START: dict[str, Callable] = {
    _COMPUTE: nova.start_compute,
    nova.AGENT: nova.start_agent,
    _LIBVIRTD: lambda cloud, name: topology.libvirtd(cloud, name).start(),
}


def _both(name, program, **values):
    return [Fault('%s-%s' % (name, side), side, program, **values)
            for side in SIDES]


FAULTS = {fault.name: fault for fault in (
    *_both('compute', _COMPUTE),
    # so late that the guest may have left before somebody looks
    Fault('compute-source-late', 'source', _COMPUTE, mend_after=45.0),
    Fault('compute-destination-late', 'destination', _COMPUTE,
          mend_after=45.0),
    *_both('libvirtd', _LIBVIRTD),
    *_both('agent', nova.AGENT),
    *_both('agent-hangs', nova.AGENT, number=signal.SIGSTOP,
           mend_after=45.0),
    Fault('qemu-source', 'source', _QEMU, survives=False),
    Fault('qemu-destination', 'destination', _QEMU),
)}


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


def _is_qemu(pid, uuid):
    try:
        words = pathlib.Path('/proc/%d/cmdline' % pid).read_bytes()
    except OSError:
        return False
    words = words.split(b'\0')
    return b'qemu-system' in words[0] and uuid.encode() in words


def _stat(pid):
    """Fields of /proc/PID/stat from the state on; zeros if it is gone."""
    try:
        text = pathlib.Path('/proc/%d/stat' % pid).read_text(
            errors='replace')
    except OSError:
        return (0,) * 4
    fields = text.rsplit(')', 1)[1].split()
    return fields[0], *map(int, fields[1:4])
