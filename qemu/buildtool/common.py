# SPDX-License-Identifier: Apache-2.0
"""Errors, the cache folder, its lock, and running a logged command."""

import contextlib
import fcntl
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile

REPOSITORY = Path(__file__).resolve().parents[2]
GIB = 1 << 30


class BuildError(Exception):
    """Ends the run with one sentence; ``log`` holds the details."""

    def __init__(self, message, log=None):
        super().__init__(message)
        self.log = log


def say(message):
    """Report progress; stdout is kept for results."""
    print(f'qemu/build: {message}', file=sys.stderr, flush=True)


def cache_root():
    """Return the project's cache folder (it need not exist)."""
    chosen = os.environ.get('NOVA_DEDUP_MIGRATE_CACHE')
    if chosen:
        return Path(chosen).absolute()
    return Path.home() / '.cache' / 'nova-dedup-migrate'


def need_space(folder, gib):
    """Refuse to start what would run out of disk space."""
    free = shutil.disk_usage(folder).free
    if free < gib * GIB:
        raise BuildError(
            f'not enough disk space: {folder} has {free / GIB:.1f} GiB '
            f'free, {gib} GiB are needed')


def need_command(name, package):
    if shutil.which(name) is None:
        raise BuildError(
            f'the command {name} is missing: install the Debian package '
            f'{package}, or run tools/bootstrap')


@contextlib.contextmanager
def scratch(folder, prefix):
    """Yield a new folder that is gone afterwards.

    Call it with the lock held: what a killed run left behind under the
    same prefix is removed as well.
    """
    for stale in folder.glob(f'{prefix}*'):
        shutil.rmtree(stale)
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Cache:
    """The folder of everything built, and who may change it.

    Children inherit the lock: a ninja that outlives a killed run keeps
    the next one out of its tree until it ends.
    """

    def __init__(self, root=None):
        self.root = (root or cache_root()) / 'qemu'
        self._lock = None

    @contextlib.contextmanager
    def locked(self):
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = open(self.root / 'lock', 'w')
        except OSError as error:
            raise BuildError(
                f'the cache folder {self.root} is not usable: '
                f'{error.strerror}') from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say('waiting for another build to end')
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._lock = lock
            try:
                yield self
            finally:
                self._lock = None

    def folder(self, *parts):
        path = self.root.joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def run(self, what, command, cwd, log, env=None, on_line=None):
        """Run a command; its output goes to the log.

        :param what: what is being done, for the error message
        :param on_line: called with every line of output
        :raises BuildError: the command failed
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, 'w', errors='replace') as sink:
            sink.write(f'$ {" ".join(map(str, command))}\n')
            sink.flush()
            process = subprocess.Popen(
                [str(word) for word in command], cwd=cwd, text=True,
                env={**os.environ, 'LC_ALL': 'C', **(env or {})},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, errors='replace',
                pass_fds=(self._lock.fileno(),) if self._lock else ())
            try:
                for line in process.stdout:
                    sink.write(line)
                    if on_line:
                        on_line(line)
                status = process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
                    process.wait()
                process.stdout.close()
        if status:
            raise BuildError(f'{what} failed', log)


def last_lines(log, count=15):
    """Return the end of a log."""
    try:
        with open(log, errors='replace') as lines:
            return lines.read().splitlines()[-count:]
    except OSError:
        return []
