# SPDX-License-Identifier: Apache-2.0
"""Processes, known by their pid and the time they were started.

A pid alone may be another process by now.
"""

import dataclasses
import os
import pathlib
import select
import signal
import time


@dataclasses.dataclass(frozen=True)
class Process:
    """A process, not necessarily a child of ours.

    :ivar start: clock ticks from boot to its start, field 22 of
        /proc/PID/stat
    """

    pid: int
    start: int

    @classmethod
    def of(cls, pid):
        """Make one of a pid; None if there is no such process."""
        stat = _stat(pid)
        return cls(pid, stat[1]) if stat else None

    def is_alive(self):
        """Whether it runs; one that only waits to be reaped does not."""
        _reap(self.pid)
        return _stat(self.pid) == ('alive', self.start)

    def send(self, number):
        """Send a signal; return whether there was somebody to get it."""
        fd = self._open()
        if fd is None:
            return False
        try:
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True

    def wait(self, timeout):
        """Wait for its end, return whether it ended.

        :param timeout: seconds
        """
        fd = self._open()
        if fd is None:
            return True
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            ended = bool(poll.poll(timeout * 1000))
        finally:
            os.close(fd)
        _reap(self.pid)
        return ended

    def end(self, timeout=10.0):
        """Ask it to end; after timeout seconds, kill it; idempotent."""
        self.send(signal.SIGTERM)
        if not self.wait(timeout):
            self.send(signal.SIGKILL)
            self.wait(timeout)

    def _open(self):
        """Open a pidfd, which means this very process for ever."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if self.is_alive():
            return fd
        os.close(fd)
        return None


def spawn(argv, log, env=None):
    """Start a program in a session of its own, return a Process.

    :param argv: the program is looked up in PATH of env
    :param log: file its output is appended to
    :param env: its environment, default ours
    :raises OSError:
    """
    log = pathlib.Path(log)
    log.parent.mkdir(parents=True, exist_ok=True)
    # No Python runs between fork and exec: this program has threads.
    pid = os.posix_spawnp(
        argv[0], [str(a) for a in argv],
        dict(os.environ if env is None else env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, '/dev/null', os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log),
             os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2)],
        setsid=True, setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ))
    return Process.of(pid)


def in_network(namespace):
    """List the processes whose network namespace is that file's."""
    try:
        wanted = _identity(namespace)
    except FileNotFoundError:
        return []
    found = []
    for entry in os.listdir('/proc'):
        if not entry.isdigit():
            continue
        try:
            same = _identity('/proc/%s/ns/net' % entry) == wanted
        except OSError:
            # it has ended, or is not ours to look at
            continue
        process = Process.of(int(entry)) if same else None
        if process is not None and process.is_alive():
            found.append(process)
    return found


def end_all(namespace, timeout=10.0):
    """End all processes in a network namespace, also new ones.

    :raises TimeoutError: some could not be killed
    """
    deadline = time.monotonic() + timeout
    number = signal.SIGTERM
    while processes := in_network(namespace):
        if time.monotonic() > deadline + timeout:
            raise TimeoutError('processes of %s do not end: %s' % (
                namespace, ', '.join(str(p.pid) for p in processes)))
        if time.monotonic() > deadline:
            number = signal.SIGKILL
        for process in processes:
            process.send(number)
        processes[0].wait(0.1)


def _identity(path):
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _stat(pid):
    """Return ('alive' or 'zombie', start), None if there is none."""
    try:
        text = pathlib.Path('/proc/%d/stat' % pid).read_text(
            errors='replace')
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name, in parentheses, may hold anything
    fields = text.rsplit(')', 1)[1].split()
    return ('zombie' if fields[0] in 'ZX' else 'alive'), int(fields[19])


def _reap(pid):
    """Take note of the end of a child; others have their own parents."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass
