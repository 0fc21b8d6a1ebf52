# SPDX-License-Identifier: Apache-2.0
"""The transport over qemu-guest-agent, if the guest allows guest-exec.

The agent returns the output of a program in one reply after the program
has ended, and libvirt accepts 4 MiB at most: too little for a large
listing.  So the program is a shell that writes the listing to an unlinked
file in memory, and the agent reads that file through /proc in pieces,
while it is written::

    guest-exec           sh -> the lister, then sleep
    guest-file-open      /proc/PID/fd/9
    guest-file-read ...  until END has been read
    guest-file-close
    guest-exec           kill PID, and the file is gone

Nothing is left in the guest if nova-compute stops meanwhile: sleep and
lister end by themselves.
"""

import base64
import math
import time
import typing

from nova_dedup_migrate.hypervisor import agent
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat
from nova_dedup_migrate.pagecache import parser as listing_parser
from nova_dedup_migrate.pagecache import transport

#: The path in the package of the lister.
LISTER = '/usr/sbin/page-cache-lister'
_FD = 9
_SCRIPT = """
umask 077
lister=$1 hold=$2
shift 2
# Listers of earlier releases would refuse it
case $("$lister" --help 2>&1) in
    *--compact*) set -- --compact "$@" ;;
esac
file=$(mktemp /dev/shm/page-cache.XXXXXX) || exit
exec 9<>"$file"
rm -f "$file"
"$lister" "$@" >&9 9>&-
status=$?
[ -s /proc/$$/fd/9 ] || exit $status
exec sleep "$hold" >/dev/null 2>&1
"""
#: Bytes of one read; base64 makes the reply a third longer.
_CHUNK = 2 << 20
#: Seconds between two reads of the growing file.
_PAUSE_S = 0.02
#: Seconds; a command that takes longer hangs.
_COMMAND_S = 5.0
#: Seconds for the clean-up.
_TIDY_S = 0.5
_MAX_PID = 1 << 31


class AgentTransport(transport.Transport):
    """The qemu-guest-agent of a guest.

    :param guest: hypervisor.base.Guest
    :param lister: path of the program in the guest
    """

    name = 'agent'

    def __init__(self, guest: hypervisor.Guest,
                 lister: str = LISTER) -> None:
        self._guest = guest
        self._lister = lister

    def obstacle(self) -> str:
        return {channel.MISSING: 'the guest has no port for qemu-guest-agent; '
                'set the image property hw_qemu_guest_agent',
                channel.CLOSED: 'qemu-guest-agent does not run in the guest',
                }.get(self._guest.channel_state(agent.PORT), '')

    def request(self, limits: transport.Limits,
                deadline: float) -> listing_parser.ListingParser:
        wanted = limits.request(0, transport.left(deadline))
        run = _Run(self._guest, self._lister, wanted, deadline)
        try:
            run.begin()
        except (hypervisor_errors.AgentUnavailable,
                hypervisor_errors.AgentError) as error:
            raise errors.GuestUnreachable(reason=str(error)) from error
        except hypervisor_errors.HypervisorError as error:
            raise errors.NoAnswer(reason=str(error)) from error
        made = listing_parser.ListingParser(wanted.extents)
        try:
            transport.read(made, run.receive, deadline)
        finally:
            run.end()
        return made


class _Run:
    """One run of the lister in the guest."""

    def __init__(self, guest: hypervisor.Guest, lister: str,
                 request: listingformat.Request, deadline: float) -> None:
        self._guest = guest
        self._deadline = deadline
        hold = math.ceil(transport.left(deadline)) + 1
        self._arguments = [
            '-c', _SCRIPT, 'sh', lister, str(hold),
            '--time', str(request.time_ms),
            '--memory', str(request.memory_kib),
            '--extents', str(request.extents)]
        self._pid = 0
        self._handle: int | None = None
        self._ended = ''
        self._any = self._hangs = False

    def begin(self) -> None:
        self._pid = self._start(self._arguments)

    def receive(self) -> bytes:
        """Return the next bytes of the listing, b'' at its end."""
        while transport.left(self._deadline):
            ended = self._ended
            data = self._read() if self._opened() else b''
            if data:
                self._any = True
                return data
            if ended:
                if self._any:
                    return b''
                raise hypervisor_errors.AgentError(command='the lister',
                                                   description=ended)
            self._ended = self._exited()
            if not self._ended:
                time.sleep(min(_PAUSE_S, transport.left(self._deadline)))
        raise hypervisor_errors.Late(what='the page-cache listing')

    def end(self) -> None:
        """End the program and close the file, if the agent answers."""
        self._deadline = time.monotonic() + _TIDY_S
        try:
            if self._handle is not None:
                self._command('guest-file-close', handle=self._handle)
            self._start(['-c', 'kill "$1"', 'sh', str(self._pid)])
            while not self._exited():
                time.sleep(_PAUSE_S)
        except hypervisor_errors.HypervisorError:
            # The program ends by itself.
            return

    def _start(self, arguments: list[str]) -> int:
        reply = self._command('guest-exec', path='/bin/sh', arg=arguments,
                              **{'capture-output': True})
        pid = decode.count(reply.get('pid'), 'pid')
        if not 0 < pid < _MAX_PID:
            raise hypervisor_errors.MalformedReply(
                field='pid', value=pid, expected='the number of a process')
        return pid

    def _opened(self) -> bool:
        """Whether the file is open; it may not exist yet."""
        if self._handle is None:
            try:
                reply = self._call('guest-file-open', mode='r', path=(
                    '/proc/%d/fd/%d' % (self._pid, _FD)))
            except hypervisor_errors.AgentError as error:
                self._check_final(error)
                return False
            self._handle = decode.count(reply, 'handle')
        return True

    @staticmethod
    def _check_final(error: hypervisor_errors.AgentError) -> None:
        """Raise the error if another try would fail as well."""
        for reason in ('disabled', 'not been found', 'not allowed'):
            if reason in error.description:
                raise error

    def _read(self) -> bytes:
        reply = self._command('guest-file-read', handle=self._handle,
                              count=_CHUNK)
        text = reply.get('buf-b64')
        try:
            data = _base64(text, validate=True)
        except ValueError as error:
            raise hypervisor_errors.MalformedReply(
                field='buf-b64', value=repr(text)[:80],
                expected='base64') from error
        if len(data) > _CHUNK:
            raise hypervisor_errors.MalformedReply(
                field='buf-b64', value=len(data),
                expected='at most %d bytes' % _CHUNK)
        return data

    def _exited(self) -> str:
        """Return how the program ended, '' if it has not."""
        reply = self._command('guest-exec-status', pid=self._pid)
        if not decode.flag(reply.get('exited'), 'exited'):
            return ''
        text = reply.get('err-data')
        try:
            printed = _base64(text or '').decode('utf-8', 'replace')
        except ValueError:
            printed = ''
        status = reply.get('exitcode', reply.get('signal'))
        return 'the lister ended with status %.20s%s%s' % (
            status, ': ' if printed else '', agent.printable(printed.strip()))

    def _command(self, name: str,
                 **arguments: typing.Any) -> dict[str, typing.Any]:
        return decode.mapping(self._call(name, **arguments), name)

    def _call(self, name: str, **arguments: typing.Any) -> typing.Any:
        if self._hangs:
            raise hypervisor_errors.AgentTimeout(command=name, seconds=0)
        try:
            return self._guest.agent(
                name, arguments,
                max(0.01, min(_COMMAND_S, transport.left(self._deadline))))
        except (hypervisor_errors.AgentTimeout,
                hypervisor_errors.AgentUnavailable):
            self._hangs = True
            raise


def _base64(text: typing.Any, validate: bool = False) -> bytes:
    """Return decoded bytes.

    :param validate: whether other characters are an error
    :raises ValueError: it is not text, or not base64
    """
    if not isinstance(text, str):
        raise ValueError('not text')
    return base64.b64decode(text, validate=validate)
