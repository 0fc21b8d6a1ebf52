# SPDX-License-Identifier: Apache-2.0
"""The protocol of qemu-guest-agent.

https://www.qemu.org/docs/master/interop/qemu-ga-ref.html

JSON lines over a port that an earlier user may have left in the middle of
something: guest-sync-delimited makes the agent answer with a byte that is
in no JSON, and what came before that is dropped.

The agent is a program in the guest and may send anything.
"""

import json
import secrets
import time
import typing

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor.channel import Channel

#: The port libvirt and qemu-guest-agent have agreed upon.
PORT = 'org.qemu.guest_agent.0'
#: Longest reply, in bytes.  libvirt passes on no longer one.
MAX_REPLY = 4 << 20
_SENTINEL = b'\xff'


def message(command: str, arguments: dict | None = None) -> str:
    """Return a command as JSON."""
    made: dict = {'execute': command}
    if arguments:
        made['arguments'] = arguments
    return json.dumps(made)


def decode(reply: str | bytes, command: str) -> typing.Any:
    """Return what a reply returns.

    :param reply: text or bytes
    :raises AgentError: the agent answered with an error
    :raises MalformedReply:
    """
    def malformed(expected: str) -> errors.MalformedReply:
        return errors.MalformedReply(field=command, value=repr(reply[:80]),
                                     expected=expected)

    if len(reply) > MAX_REPLY:
        raise malformed('at most %d bytes' % MAX_REPLY)
    try:
        answer = json.loads(reply)
    except (ValueError, RecursionError) as error:
        raise malformed('JSON') from error
    if not isinstance(answer, dict):
        raise malformed('an object')
    if 'return' in answer:
        return answer['return']
    problem = answer.get('error')
    if not isinstance(problem, dict):
        raise malformed('return or error')
    raise errors.AgentError(command=command,
                            description=printable(problem.get('desc')))


def printable(text: object) -> str:
    """Return what the guest says, safe for a terminal."""
    return ''.join(c if c.isprintable() else '?' for c in str(text)[:256])


def execute(channel: Channel, command: str, arguments: dict | None = None,
            timeout: float = 5.0) -> typing.Any:
    """Run a command over a channel.Channel, return what it returned.

    :raises AgentTimeout: no answer within timeout seconds
    :raises AgentUnavailable: the channel was closed
    :raises AgentError, MalformedReply: see decode()
    """
    deadline = time.monotonic() + timeout
    try:
        lines = _Lines(channel, deadline)
        _synchronize(channel, lines, deadline)
        channel.send(message(command, arguments).encode() + b'\n', deadline)
        return decode(lines.next(command), command)
    except errors.WaitTimeout as error:
        raise errors.AgentTimeout(command=command,
                                  seconds=timeout) from error
    except errors.ChannelUnavailable as error:
        raise errors.AgentUnavailable(reason=str(error)) from error


def _synchronize(channel: Channel, lines: "_Lines",
                 deadline: float) -> None:
    number = secrets.randbits(31)
    channel.send(_SENTINEL + message('guest-sync-delimited', {
        'id': number}).encode() + b'\n', deadline)
    while True:
        lines.skip_to_sentinel()
        try:
            if decode(lines.next('guest-sync-delimited'),
                      'guest-sync-delimited') == number:
                return
        except (errors.AgentError, errors.MalformedReply):
            # of an earlier user's, or noise; the deadline ends it
            continue


class _Lines:
    """What comes, line by line, up to MAX_REPLY at a time."""

    def __init__(self, channel: Channel, deadline: float) -> None:
        self._channel = channel
        self._deadline = deadline
        self._data = bytearray()

    def skip_to_sentinel(self) -> None:
        while (at := self._data.find(_SENTINEL)) < 0:
            self._data.clear()
            self._more()
        del self._data[:at + 1]

    def next(self, command: str) -> bytes:
        searched = 0
        while (at := self._data.find(b'\n', searched)) < 0:
            searched = len(self._data)
            if searched > MAX_REPLY:
                raise errors.MalformedReply(
                    field=command, value=repr(bytes(self._data[:80])),
                    expected='at most %d bytes' % MAX_REPLY)
            self._more()
        line = bytes(self._data[:at])
        del self._data[:at + 1]
        return line

    def _more(self) -> None:
        if time.monotonic() > self._deadline:
            # Who sends without end never makes receive() wait.
            raise errors.Late(what='an answer')
        data = self._channel.receive(self._deadline)
        if not data:
            raise errors.ChannelUnavailable(channel=self._channel.name,
                                            reason='it was closed')
        self._data += data
