# SPDX-License-Identifier: Apache-2.0
"""Which backups are being read, in a directory that hosts share.

A lease is a file BACKUP.RANDOM whose time of modification is renewed while
the backup is read.  A lease that has not been renewed for EXPIRY seconds
is over: its daemon has died.  Times are compared with that of a file which
is written then, so that only the clock of the directory's server counts.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import logging
import os
import pathlib
import secrets
import tempfile
import threading
import time

LOG = logging.getLogger(__name__)

#: Seconds between two renewals, and until a lease is over.
RENEWAL = 15.0
EXPIRY = 60.0
#: Seconds between two looks at the leases of a backup.
_POLL = 1.0


class Leases:
    """The leases of this daemon.

    :param directory: None: none are held
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = pathlib.Path(directory) if directory else None
        self._guard = threading.Lock()
        self._held: set[pathlib.Path] = set()
        self._stopped = threading.Event()
        if self._directory is not None:
            threading.Thread(target=self._renew, name='assist-leases',
                             daemon=True).start()

    @contextlib.contextmanager
    def hold(self, backup_ids: Iterable[str]) -> Iterator[None]:
        """Keep backups from being deleted.

        A directory that fails keeps no backup from being read.
        """
        held = []
        try:
            if self._directory is not None:
                for backup_id in backup_ids:
                    path = self._directory / (
                        '%s.%s' % (backup_id, secrets.token_hex(8)))
                    path.touch(mode=0o640, exist_ok=False)
                    held.append(path)
        except OSError as error:
            LOG.warning('Backups are read without a lease: %s', error)
        with self._guard:
            self._held.update(held)
        try:
            yield
        finally:
            with self._guard:
                self._held.difference_update(held)
            for path in held:
                with contextlib.suppress(OSError):
                    path.unlink()

    def stop(self) -> None:
        self._stopped.set()

    def _renew(self) -> None:
        while not self._stopped.wait(RENEWAL):
            with self._guard:
                held = list(self._held)
            for path in held:
                # One that has been removed is over.
                with contextlib.suppress(OSError):
                    os.utime(path)


def wait(directory: str | None, backup_id: str, seconds: float,
         sleep: Callable[[float], None] = time.sleep) -> bool:
    """Wait until nobody reads a backup; return whether it is so.

    :param seconds: at most
    """
    if not directory:
        return True
    end = time.monotonic() + seconds
    try:
        while _is_held(directory, backup_id):
            if time.monotonic() >= end:
                return False
            sleep(_POLL)
    except OSError as error:
        LOG.warning('Whether backup %s is being read is not known: %s',
                    backup_id, error)
    return True


def _is_held(directory: str, backup_id: str) -> bool:
    with tempfile.NamedTemporaryFile(prefix='now.', dir=directory) as probe:
        now = os.stat(probe.name).st_mtime
    held = False
    for path in pathlib.Path(directory).glob(backup_id + '.*'):
        with contextlib.suppress(FileNotFoundError):
            if now - path.stat().st_mtime < EXPIRY:
                held = True
            else:
                path.unlink()
    return held
