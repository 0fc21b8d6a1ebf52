# SPDX-License-Identifier: Apache-2.0
"""QMP commands through libvirt, and what its errors mean to us.

call() is the only place that talks to the monitor, for programs that
have to run such a call in some special way.
"""

from collections.abc import Callable
from collections.abc import Iterator
import concurrent.futures
import contextlib
import json
import os
import threading
import typing

import libvirt
import libvirt_qemu

from nova_dedup_migrate import native
from nova_dedup_migrate.hypervisor import errors

_Result = typing.TypeVar('_Result')
#: Longest reply that is decoded, in characters.
MAX_REPLY = 4 << 20
#: Codes of a libvirt that is not there, or not any more.
_UNAVAILABLE = (libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_ERR_INVALID_CONN,
                libvirt.VIR_ERR_RPC, libvirt.VIR_ERR_AUTH_FAILED)
#: States of a guest that arrives, though not of these alone.
_ARRIVING = (
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION),
    (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY),
    (libvirt.VIR_DOMAIN_RUNNING,
     libvirt.VIR_DOMAIN_RUNNING_POSTCOPY_FAILED))
#: States of the source of a migration that has switched to post-copy.
#: A destination whose guest was paused has them, too.
_HANDED_OVER = (
    (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY),
    (libvirt.VIR_DOMAIN_PAUSED,
     libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED))
_STATES = ('NOSTATE', 'RUNNING', 'BLOCKED', 'PAUSED', 'SHUTDOWN', 'SHUTOFF',
           'CRASHED', 'PMSUSPENDED')


def call(domain: libvirt.virDomain, text: str, fd: int | None = None) -> str:
    """Send a QMP command, return the text of the reply.

    It lasts as long as QEMU takes to answer.

    :param domain: libvirt.virDomain
    :param text: command as JSON
    :param fd: file descriptor to pass along; the connection must be one
        over a unix socket
    :raises libvirt.libvirtError:
    """
    if fd is None:
        return libvirt_qemu.qemuMonitorCommand(domain, text, 0)
    reply, files = libvirt_qemu.qemuMonitorCommandWithFiles(
        domain, text, [fd], 0)
    for file in files:
        file.close()
    return reply


def execute(domain: libvirt.virDomain, name: str, command: str,
            arguments: dict | None, timeout: float,
            fd: int | None = None) -> typing.Any:
    """Run a QMP command, return what it returned; see Guest.qmp.

    :param name: of the guest, for error messages
    :param timeout: seconds
    :raises InvalidMigrationState: the guest is only just arriving
    """
    text = _encode(command, arguments)
    return _decode(_run(domain, name, command, timeout,
                        lambda: call(native.raw(domain), text, fd)),
                   command)


def _encode(command: str, arguments: dict | None) -> str:
    message: dict = {'execute': command}
    if arguments:
        message['arguments'] = arguments
    return json.dumps(message)


def _run(domain: libvirt.virDomain, name: str, command: str, timeout: float,
         function: Callable[[], _Result]) -> _Result:
    """Return what function returns, unless the guest cannot be asked."""
    def run() -> _Result:
        if is_incoming(native.raw(domain)):
            # libvirt would make us wait for half a minute to say no
            raise errors.InvalidMigrationState(
                action='run %s on guest %s' % (command, name),
                status='incoming')
        return function()

    try:
        return within(timeout, command, run)
    except libvirt.libvirtError as error:
        raise _monitor_error(error, domain, name, command) from error


def is_incoming(domain: libvirt.virDomain) -> bool:
    """Whether the domain is the destination of a migration that goes on.

    libvirt does not say so directly; but it has statistics of a
    migration only for the source.

    :raises libvirt.libvirtError:
    """
    return (tuple(domain.state()) in _ARRIVING
            and _has_incoming_job(domain))


def _has_incoming_job(domain: libvirt.virDomain) -> bool:
    try:
        domain.jobStats()
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_OPERATION_UNSUPPORTED:
            return True
        raise
    return False


def guest_state(domain: libvirt.virDomain) -> str:
    """Return where the guest of a domain is, as its host sees it.

    ====================================  ==============  =============
    state (reason)                        incoming job    result
    ====================================  ==============  =============
    shut off, or no process               any             none
    running (any)                         any             here
    paused (post-copy, post-copy failed)  yes             here
    paused (post-copy, post-copy failed)  no: the source  none
    any other                             yes             arriving
    any other                             no              here
    ====================================  ==============  =============

    libvirt sets "running" at the destination when QEMU has resumed the
    guest there, and the two of post-copy when the source has handed the
    guest over: it cannot continue there.

    :param domain: libvirt.virDomain
    :returns: one of rpc.objects.GUEST_STATES
    :raises libvirt.libvirtError:
    """
    if not domain.isActive():
        return 'none'
    state, reason = domain.state()[:2]
    if state == libvirt.VIR_DOMAIN_SHUTOFF:
        # since the line before
        return 'none'
    if state == libvirt.VIR_DOMAIN_RUNNING:
        return 'here'
    incoming = _has_incoming_job(domain)
    if (state, reason) in _HANDED_OVER:
        return 'here' if incoming else 'none'
    return 'arriving' if incoming else 'here'


def state_in_words(domain: libvirt.virDomain) -> str:
    """Return libvirt's state and reason, as "paused (postcopy failed)".

    :raises libvirt.libvirtError:
    """
    state, reason = domain.state()[:2]
    name = next((name for name in _STATES
                 if getattr(libvirt, 'VIR_DOMAIN_' + name) == state), None)
    if name is None:
        return 'state %d (%d)' % (state, reason)
    prefix = 'VIR_DOMAIN_%s_' % name
    # In reverse, SHUTDOWN_USER and _UNKNOWN precede the flags of
    # shutdownFlags(), which begin in the same way.
    words = next((each.removeprefix(prefix)
                  for each in sorted(vars(libvirt), reverse=True)
                  if each.startswith(prefix)
                  and getattr(libvirt, each) == reason), str(reason))
    return '%s (%s)' % (name.lower(), words.lower().replace('_', ' '))


def within(timeout: float, command: str,
           function: Callable[[], _Result]) -> _Result:
    """Run function in a thread, which is given up if it takes too long.

    :param function: is run by native.call()
    :raises QmpTimeout: it did

    A libvirt call cannot be interrupted.  The thread ends when QEMU
    answers or ends; until then libvirt refuses further commands by
    itself.
    """
    outcome = concurrent.futures.Future()

    def run() -> None:
        try:
            outcome.set_result(native.call(function))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name='qmp', daemon=True).start()
    try:
        return outcome.result(timeout)
    except concurrent.futures.TimeoutError as error:
        raise errors.QmpTimeout(command=command, seconds=timeout) from error


def _decode(reply: str, command: str) -> typing.Any:
    def malformed(expected: str) -> errors.MalformedReply:
        return errors.MalformedReply(field=command, value=reply[:80],
                                     expected=expected)

    if len(reply) > MAX_REPLY:
        raise malformed('at most %d characters' % MAX_REPLY)
    try:
        message = json.loads(reply)
    except (ValueError, RecursionError) as error:
        raise malformed('JSON') from error
    if not isinstance(message, dict):
        raise malformed('an object')
    if 'return' in message:
        return message['return']
    problem = message.get('error')
    if not isinstance(problem, dict):
        raise malformed('return or error')
    kind = str(problem.get('class'))[:80]
    raise (errors.CommandNotFound if kind == 'CommandNotFound'
           else errors.QmpError)(
        command=command, error_class=kind,
        description=str(problem.get('desc'))[:1024])


def _monitor_error(error: libvirt.libvirtError, domain: libvirt.virDomain,
                   name: str, command: str) -> errors.HypervisorError:
    code = error.get_error_code()
    if not is_unavailable(error) and not _is_active(domain):
        if code in (libvirt.VIR_ERR_NO_DOMAIN,
                    libvirt.VIR_ERR_OPERATION_INVALID):
            return errors.GuestNotRunning(name=name)
        return errors.QmpDisconnected(command=command)
    return convert(error, name, command)


def is_unavailable(error: libvirt.libvirtError) -> bool:
    """Whether a libvirtError says that libvirtd is not there any more."""
    return (error.get_error_code() in _UNAVAILABLE
            or error.get_error_domain() == libvirt.VIR_FROM_RPC)


def _is_active(domain: libvirt.virDomain) -> bool:
    try:
        return bool(domain.isActive())
    except libvirt.libvirtError:
        return False


def convert(error: libvirt.libvirtError, name: str,
            action: str) -> errors.HypervisorError:
    """Make one of our errors of a libvirtError.

    :param name: of the guest
    :param action: what was to be done
    """
    code = error.get_error_code()
    reason = error.get_error_message() or str(error)
    if code == libvirt.VIR_ERR_NO_DOMAIN:
        return errors.GuestNotRunning(name=name)
    if code == libvirt.VIR_ERR_OPERATION_TIMEOUT:
        return errors.QmpTimeout(command=action, seconds=30)
    if is_unavailable(error):
        return errors.HypervisorUnavailable(uri='libvirt', reason=reason)
    return errors.HypervisorRefused(action=action, name=name,
                                    reason=reason, code=code)


@contextlib.contextmanager
def converting(name: str | os.PathLike, action: str) -> Iterator[None]:
    """Turn the errors of libvirt calls into ours."""
    try:
        yield
    except libvirt.libvirtError as error:
        raise convert(error, os.fspath(name), action) from error
