# SPDX-License-Identifier: Apache-2.0
"""Processes that do not outlive the program that started them."""

import atexit
from collections.abc import Sequence
import os
import pathlib
import shutil
import subprocess
import weakref

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import qmp

_running: 'weakref.WeakSet[Process]' = weakref.WeakSet()


class Process:
    """A child with its output in a log file.

    :param argv: command
    :param log: Path of the log
    :param directory: its working directory, gets a file pid
    :param env: added to our environment
    :param pass_fds: descriptors it inherits under the same numbers
    """

    def __init__(self, argv: Sequence[str | os.PathLike],
                 log: str | os.PathLike, directory: str | os.PathLike,
                 env: dict[str, str] | None = None,
                 pass_fds: Sequence[int] = ()) -> None:
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
    def pid(self) -> int:
        return self._popen.pid

    def status(self) -> int | None:
        """Exit status (negative: the signal), None while it runs."""
        return self._popen.poll()

    def wait(self, timeout: float) -> bool:
        """Wait for its end, return whether it ended."""
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Kill and reap it; idempotent."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        _running.discard(self)

    def last_lines(self, lines: int = 5, limit: int = 4096) -> str:
        """Return the end of its log as one line."""
        try:
            with self._log.open('rb') as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - limit))
                tail = log.read().decode(errors='replace')
        except OSError:
            return ''
        return '; '.join(tail.strip().splitlines()[-lines:])


def _setpriv() -> str:
    path = shutil.which('setpriv')
    if path is None:
        raise errors.BinaryNotFound(binary='setpriv')
    return path


@atexit.register
def _kill_all() -> None:
    for process in list(_running):
        process.kill()
