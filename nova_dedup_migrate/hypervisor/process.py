# SPDX-License-Identifier: Apache-2.0
"""Processes that do not outlive the program that started them."""

import atexit
import os
import pathlib
import shutil
import subprocess
import weakref

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import qmp

_running = weakref.WeakSet()


class Process:
    """A child with its output in a log file.

    :param argv: command
    :param log: Path of the log
    :param directory: its working directory, gets a file pid
    :param env: added to our environment
    :param pass_fds: descriptors it inherits under the same numbers
    """

    def __init__(self, argv, log, directory, env=None, pass_fds=()):
        self._log = pathlib.Path(log)
        # The kernel kills the child when the *thread* that made it ends,
        # so it is made by a thread that lasts as long as the program.
        # setpriv instead of preexec_fn: no Python between fork and exec.
        with self._log.open('ab') as output:
            self._popen = qmp.call(lambda: subprocess.Popen(
                [_setpriv(), '--pdeathsig', 'KILL', '--', *argv],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                cwd=directory, env={**os.environ, **(env or {})},
                pass_fds=pass_fds, start_new_session=True))
        _running.add(self)
        (pathlib.Path(directory) / 'pid').write_text('%d\n' % self.pid)

    @property
    def pid(self):
        return self._popen.pid

    def status(self):
        """Exit status (negative: the signal), None while it runs."""
        return self._popen.poll()

    def wait(self, timeout):
        """Wait for its end, return whether it ended."""
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self):
        """Kill and reap it; idempotent."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        _running.discard(self)

    def last_lines(self, lines=5, limit=4096):
        """Return the end of its log as one line."""
        try:
            with self._log.open('rb') as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - limit))
                tail = log.read().decode(errors='replace')
        except OSError:
            return ''
        return '; '.join(tail.strip().splitlines()[-lines:])


def _setpriv():
    path = shutil.which('setpriv')
    if path is None:
        raise errors.BinaryNotFound(binary='setpriv')
    return path


@atexit.register
def _kill_all():
    for process in list(_running):
        process.kill()
