# SPDX-License-Identifier: Apache-2.0
"""virtio-serial ports and qemu-guest-agent through libvirt.

libvirt hands out a port as a stream, over the connection there is: its
socket belongs to QEMU and is not for other users of the host.
"""

import math
import time
import typing
from xml.etree import ElementTree

import libvirt
import libvirt_qemu

from nova_dedup_migrate import native
from nova_dedup_migrate.hypervisor import agent
from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt_monitor

_WOULD_BLOCK = -2
_NO_AGENT = (libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
             libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED,
             libvirt.VIR_ERR_OPERATION_INVALID)
#: Seconds libvirt may take beyond those the agent was given, twice.
_SLACK_S = 0.5


def state(xml: str, name: str) -> str:
    """Return the state of a port, see hypervisor.channel.

    :param xml: of a domain that runs
    """
    for target in ElementTree.fromstring(xml).iterfind(
            './devices/channel/target'):
        if target.get('type') == 'virtio' and target.get('name') == name:
            return (channel.OPEN if target.get('state') == 'connected'
                    else channel.CLOSED)
    return channel.MISSING


def execute(domain: libvirt.virDomain, command: str,
            arguments: dict | None, timeout: float) -> typing.Any:
    """Run a command of the agent; see base.Guest.agent."""
    text = agent.message(command, arguments)
    # Whole seconds; and libvirt takes the time for a sync beforehand, too.
    seconds = max(1, math.ceil(timeout / 2))

    def run() -> str:
        return libvirt_qemu.qemuAgentCommand(native.raw(domain), text,
                                             seconds, 0)

    try:
        reply = libvirt_monitor.within(timeout + _SLACK_S, command, run)
    except errors.QmpTimeout as error:
        raise errors.AgentTimeout(command=command,
                                  seconds=timeout) from error
    except libvirt.libvirtError as error:
        reason = agent.printable(error.get_error_message() or error)
        if error.get_error_code() in _NO_AGENT:
            raise errors.AgentUnavailable(reason=reason) from error
        raise errors.AgentError(command=command,
                                description=reason) from error
    return agent.decode(reply, command)


class LibvirtChannel(channel.Channel):
    """A port as a stream of libvirt.

    :param domain: libvirt.virDomain, whose connection has an event loop
    :param name: of the port
    :raises ChannelUnavailable:
    """

    def __init__(self, domain: libvirt.virDomain, name: str) -> None:
        self.name = name
        # shared with the event loop's thread
        threading = native.threading()
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._stream: libvirt.virStream | None = None
        try:
            stream = domain.connect().newStream(libvirt.VIR_STREAM_NONBLOCK)
            domain.openChannel(name, stream, 0)
            stream.eventAddCallback(0, self._on_event, None)
        except libvirt.libvirtError as error:
            raise self._broken(error) from error
        self._stream = stream

    def _on_event(self, stream: libvirt.virStream, events: int,
                  opaque: object) -> None:
        """Wake who waits; it would be called again at once otherwise."""
        with self._lock:
            if self._stream is not None:
                stream.eventUpdateCallback(0)
        self._ready.set()

    def send(self, data: bytes, deadline: float) -> None:
        while data:
            sent = self._call('send', data)
            if sent == _WOULD_BLOCK:
                self._wait(deadline, libvirt.VIR_STREAM_EVENT_WRITABLE,
                           'a reader')
            else:
                data = data[sent:]

    def receive(self, deadline: float) -> bytes:
        while (data := self._call('recv', channel.CHUNK)) == _WOULD_BLOCK:
            self._wait(deadline, libvirt.VIR_STREAM_EVENT_READABLE, 'data')
        return data

    def _call(self, name: str, argument: object) -> typing.Any:
        try:
            return getattr(self._stream, name)(argument)
        except libvirt.libvirtError as error:
            raise self._broken(error) from error

    def _wait(self, deadline: float, event: int, what: str) -> None:
        self._ready.clear()
        self._call('eventUpdateCallback',
                   event | libvirt.VIR_STREAM_EVENT_ERROR
                   | libvirt.VIR_STREAM_EVENT_HANGUP)
        if not native.call(self._ready.wait,
                           max(0.0, deadline - time.monotonic())):
            raise channel.late(self.name, what)

    def _broken(self, error: libvirt.libvirtError
                ) -> errors.ChannelUnavailable:
        return errors.ChannelUnavailable(
            channel=self.name,
            reason=error.get_error_message() or str(error))

    def close(self) -> None:
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is None:
            return
        for end in (stream.eventRemoveCallback, stream.abort):
            try:
                end()
            except libvirt.libvirtError:
                # it broke before
                continue
