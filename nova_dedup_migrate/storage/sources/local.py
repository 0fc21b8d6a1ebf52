# SPDX-License-Identifier: Apache-2.0
"""Blocks of files on this host, found by its index."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import logging
import os

from nova_dedup_migrate.images import paths
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.storage.sources import base

LOG = logging.getLogger(__name__)


class LocalSource(base.Source):
    """Reads what the index knows of.

    :param index: of this host
    :param owners: returns whose content may be used now, as agent.owners
        names them
    :param roots: directories that files may be in
    """

    name = 'local'
    cost = base.Cost(rate=300e6, latency=0.002)

    def __init__(self, index: store.Index,
                 owners: Callable[[], Collection[str]],
                 roots: Sequence[str]) -> None:
        self._index = index
        self._owners = owners
        self._roots = tuple(roots)

    def have(self, wanted: Sequence[blocks.Block]) -> list[bool]:
        places = self._find(wanted)
        there = {file: _is_there(file)
                 for file in {place.file for place in places if place}}
        return [place is not None and there[place.file] for place in places]

    def read(self, wanted: Sequence[blocks.Block]) -> list[bytes | None]:
        found: list[bytes | None] = [None] * len(wanted)
        by_file: dict[store.File, list[tuple[int, int]]] = {}
        for number, place in enumerate(self._find(wanted)):
            if place is not None:
                by_file.setdefault(place.file, []).append(
                    (place.offset, number))
        for file, places in by_file.items():
            try:
                with paths.open_file(file.path, self._roots) as fd:
                    if os.fstat(fd).st_ino != file.inode:
                        continue
                    for offset, number in sorted(places):
                        found[number] = os.pread(
                            fd, wanted[number].length, offset)
            except (OSError, paths.PathRefused) as error:
                # The index is a hint; the file may have gone since.
                LOG.debug('File %s of the index is not read: %s',
                          file.path, error)
        return found

    def _find(self, wanted: Sequence[blocks.Block]
              ) -> list[store.Place | None]:
        return self._index.find([block.digest for block in wanted],
                                self._owners())


def _is_there(file: store.File) -> bool:
    """Return whether a file is still the one that was indexed.

    The index keeps entries of deleted files until it compacts, and a plan
    must not count on them.
    """
    try:
        return os.stat(file.path).st_ino == file.inode
    except OSError:
        return False
