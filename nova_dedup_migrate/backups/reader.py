# SPDX-License-Identifier: Apache-2.0
"""Finds a volume's newest backup and reads it from one of the daemons.

Several daemons may serve the same store.  The least busy one is used
first; one that fails is left for another, and not used again.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import logging
import ssl
from typing import BinaryIO

from nova_dedup_migrate.backups import api as backups_api
from nova_dedup_migrate.backups import connection
from nova_dedup_migrate.backups import errors
from nova_dedup_migrate.backups import frames
from nova_dedup_migrate.backups import objects

LOG = logging.getLogger(__name__)


class BackupReader:
    """Reads one backup of a volume.

    :param api: client of the daemons
    :param context: of connection.tls_context
    :param host: this one, as its certificate names it
    :param accept: returns why a backup is not to be used, '' if it may
    :ivar backup: DedupBackup, after open()
    :ivar server: host of the daemon in use, after open()
    """

    def __init__(self, api: backups_api.BackupAssistAPI,
                 context: ssl.SSLContext, host: str, volume_id: str,
                 project_id: str,
                 accept: Callable[[objects.DedupBackup], str] | None = None
                 ) -> None:
        self._api = api
        self._context = context
        self._host = host
        self._volume_id = volume_id
        self._project_id = project_id
        self._accept = accept or (lambda backup: '')
        self._hosts: list[str] = []
        self._connection: connection.Connection | None = None
        self._ticket = ''
        self.server = ''
        self.backup: objects.DedupBackup | None = None

    @property
    def size(self) -> int:
        """Bytes of the volume."""
        return self._open_connection().size

    @property
    def unit(self) -> int:
        """Bytes of a unit, the bytes of one SHA-256."""
        return self._open_connection().unit

    def open(self) -> BinaryIO:
        """Open the newest backup; return a file with its SHA-256.

        :raises BackupError: there is none that can be read
        """
        found = self._api.find(objects.DedupBackupFindRequest(
            volume_id=self._volume_id, project_id=self._project_id,
            host=self._host))
        reasons = []
        for backup in found.backups:
            reason = backup.reason if not backup.usable else (
                self._accept(backup))
            if not reason:
                self.backup = backup
                break
            reasons.append('backup %s: %s' % (backup.backup_id, reason))
        if self.backup is None:
            raise errors.NoBackup(volume_id=self._volume_id, reason='; '.join(
                reasons[:3]) or 'it has none')
        self._hosts = self._by_load(found.hosts)
        return self._connect('no daemon was found')

    def stream(self, extents: list[tuple[int, int]]
               ) -> Iterator[frames.Frame]:
        """Yield frames as Connection.stream.

        If the daemon fails, what has not come yet comes from another.

        :raises BackupError: no daemon is left
        """
        left = extents
        while left:
            done: list[tuple[int, int]] = []
            try:
                for frame in self._open_connection().stream(left):
                    yield frame
                    done.append((frame.offset, frame.length))
                return
            except errors.AssistUnavailable as error:
                LOG.warning('%s. The backup is read from another host',
                            error)
                before = self._open_connection()
                self._leave()
                with self._connect(error.reason):
                    pass
                if (before.size, before.unit) != (self.size, self.unit):
                    raise errors.StreamMalformed(
                        host=self.server, reason='it has another backup '
                        'than the host before') from error
            left = subtract(left, done)

    def close(self) -> None:
        """End the connection."""
        if self._connection is None:
            return
        self._leave()
        # The daemon then need not wait for it.
        with contextlib.suppress(errors.BackupError):
            self._api.close(self.server, self._ticket)

    def _open_connection(self) -> connection.Connection:
        if self._connection is None:
            raise errors.BackupError(reason='it has been closed')
        return self._connection

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self, reason: str) -> BinaryIO:
        """Connect to the next daemon that can be used.

        :param reason: why the one before cannot
        """
        assert self.backup is not None
        while self._hosts:
            host = self._hosts.pop(0)
            try:
                ticket = self._api.open(host, objects.DedupBackupOpenRequest(
                    backup_id=self.backup.backup_id,
                    volume_id=self._volume_id, project_id=self._project_id,
                    host=self._host))
                self._connection = connection.Connection(host, ticket,
                                                         self._context)
                manifest = self._connection.manifest()
            except errors.BackupError as error:
                self._leave()
                LOG.info('%s', error)
                reason = str(error)
                continue
            self.server, self._ticket = host, ticket.ticket
            return manifest
        raise errors.NoBackup(volume_id=self._volume_id, reason=reason)

    def _by_load(self, hosts: list[str]) -> list[str]:
        """Return the hosts that answer, the least busy one first."""
        loads = []
        for host in hosts:
            try:
                load = self._api.load(host)
            except errors.AssistUnavailable as error:
                LOG.info('%s', error)
                continue
            loads.append((load.connections / max(load.limit, 1), host))
        return [host for _, host in sorted(loads)]


def subtract(extents: list[tuple[int, int]], done: list[tuple[int, int]]
             ) -> list[tuple[int, int]]:
    """Return what of extents is not done.

    Zeros never come, so they stay in what is returned.

    :param extents: (offset, length), ascending
    :param done: parts of extents in any order, none twice
    """
    left = []
    gone = iter(sorted(done))
    gap = next(gone, None)
    for offset, length in extents:
        end = offset + length
        while gap is not None and gap[0] < end:
            if gap[0] > offset:
                left.append((offset, gap[0] - offset))
            offset = max(offset, gap[0] + gap[1])
            gap = next(gone, None)
        if offset < end:
            left.append((offset, end - offset))
    return left
