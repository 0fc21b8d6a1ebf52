# SPDX-License-Identifier: Apache-2.0
"""One backup that is being read over one connection."""

from __future__ import annotations

from collections.abc import Iterator
import logging
from typing import Any
from typing import BinaryIO

from cinder_backup_assist.blockmap import chain as blockmap_chain
from cinder_backup_assist.blockmap import stream
from cinder_backup_assist.service import limits
from cinder_backup_assist.service import metrics as service_metrics
from cinder_backup_assist.store import drivers
from nova_dedup_migrate.backups import frames

LOG = logging.getLogger(__name__)

#: Objects that fail in a session and are logged one by one.
_LOGGED = 10


class Session:
    """The map of a chain, and what is read by it.

    :param chain: Cinder's objects, the newest backup first
    :param directory: for the map
    :raises AssistError: the backup cannot be served
    """

    def __init__(self, store: drivers.BackupStore, chain: list[Any],
                 directory: str | None, rate: limits.RateLimit,
                 metrics: service_metrics.Metrics) -> None:
        self._store = store
        self._layers = list(reversed(chain))
        self._rate = rate
        self._metrics = metrics
        self._failed: set[str] = set()
        self.blocks = blockmap_chain.join(
            [store.layer(backup) for backup in chain], directory)
        self._readers = stream.Readers(self._open)

    def close(self) -> None:
        self._readers.close()
        self.blocks.close()

    def frames(self, extents: list[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the answer to a request of POST /v1/stream.

        :param extents: of frames.parse_extents
        """
        for item in stream.read(self.blocks, extents, self._readers):
            if isinstance(item, stream.Block):
                self._rate.wait(len(item.data))
                yield frames.pack(frames.DATA, item.offset,
                                  len(item.data)) + item.data
                self._metrics.add('sent_bytes_total', len(item.data))
                continue
            self._log(item)
            for offset, length in item.ranges:
                yield frames.pack(frames.MISSING, offset, length)
                self._metrics.add('missing_bytes_total', length)
        yield frames.pack(frames.END)

    def _open(self, entry: blockmap_chain.ChainObject) -> BinaryIO:
        backup = self._layers[entry.layer]
        return self._store.open(backup, entry.name,
                                self.blocks.extras[entry.layer])

    def _log(self, failure: stream.Failure) -> None:
        if failure.name in self._failed:
            return
        self._failed.add(failure.name)
        self._metrics.add('objects_failed_total')
        if len(self._failed) <= _LOGGED:
            LOG.warning('Object %s of the backup store is not served: %s. '
                        'The blocks are taken from the volume. Make a new '
                        'full backup', failure.name, failure.reason)
