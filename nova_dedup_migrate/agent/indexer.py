# SPDX-License-Identifier: Apache-2.0
"""Keeps the index of this host current, in the background.

A sweep looks for files that are new or have changed, reads them at a
limited rate with the lowest priority for processor and disk, and takes out
what has gone.  It waits while the host is loaded or a migration is under
way.  The disk of a running guest changes all the time; it is read again
at most every DISK_AGE, and what the index says of it is a hint as always.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import logging
import os
import subprocess
import threading
import time

from nova_dedup_migrate.images import paths
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage.channel import limiter
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import store

LOG = logging.getLogger(__name__)

#: Seconds after which a file that changes is read again.
DISK_AGE = 24 * 3600.0
#: Seconds between two looks at the load while it waits.
_WAIT = 5.0
_NICE = 19


class _Stopped(Exception):
    """The agent stops."""


class Indexer:
    """The thread that sweeps.

    :param index: what it keeps
    :param files: returns path -> owner of what is to be in it
    :param roots: directories that files may be in
    :param interval: seconds between two sweeps, 0: none
    :param rate: bytes a second
    :param is_busy: whether a migration is under way here
    :param max_load: load average for each processor at which it waits
    """

    def __init__(self, index: store.Index,
                 files: Callable[[], Mapping[str, str]],
                 roots: Sequence[str], interval: float, rate: float,
                 is_busy: Callable[[], bool], max_load: float = 1.0
                 ) -> None:
        self._index = index
        self._files = files
        self._roots = tuple(roots)
        self._interval = interval
        self._is_busy = is_busy
        self._max_load = max_load * (os.cpu_count() or 1)
        self._stopping = threading.Event()
        self._limit = limiter.Limiter(rate, sleep=self._stopping.wait)
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='dedup-index')

    def start(self) -> None:
        if self._interval:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        yield_priority()
        while not self._stopping.wait(min(self._interval, _WAIT)):
            try:
                self.sweep()
            except _Stopped:
                return
            except Exception:
                # Whatever it is, migrations do without the index.
                LOG.exception('The index was not made current. It is tried '
                              'again in %g s.', self._interval)
            if self._stopping.wait(self._interval):
                return

    def sweep(self) -> None:
        """Make the index current once."""
        wanted = self._files()
        for file in self._index.files():
            if file.path not in wanted or not os.path.exists(file.path):
                self._index.remove(file.path)
        for path, owner in wanted.items():
            self._index.set_owner(path, owner)
            try:
                self._read(path, owner)
            except (OSError, paths.PathRefused, errors.StorageError
                    ) as error:
                LOG.info('File %s is not indexed: %s', path, error)

    def _read(self, path: str, owner: str) -> None:
        with paths.open_file(path, self._roots) as fd:
            known = self._index.file(path)
            if known is not None and (
                    known.is_as(os.fstat(fd))
                    or time.time() - known.indexed < DISK_AGE):
                return
            found = fingerprints.fingerprint(fd, self._pause)
        self._index.add(path, owner, found.stat, found.digests,
                        found.numbers)
        LOG.info('File %s is indexed: %d blocks, %d of zeros', path,
                 len(found.numbers), found.zeros)

    def _pause(self, length: int) -> None:
        """Wait until a read does not disturb.

        :raises _Stopped:
        """
        self._limit(length)
        while not self._stopping.is_set() and (
                self._is_busy() or os.getloadavg()[0] > self._max_load):
            self._stopping.wait(_WAIT)
        if self._stopping.is_set():
            raise _Stopped


def yield_priority() -> None:
    """Give this thread the lowest priority for processor and disk."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, _NICE)
    try:
        subprocess.run(['ionice', '--class', 'idle', '--pid', str(thread)],
                       check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        LOG.info('The index is built with ordinary disk priority: ionice '
                 'failed: %s', error)
