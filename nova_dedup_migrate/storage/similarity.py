# SPDX-License-Identifier: Apache-2.0
"""How much of a disk is in another one.

The share is that of the blocks of the first, zeros left out, whose content
the second has anywhere: the most that a destination with the second can
build of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import os
import time

import numpy

from nova_dedup_migrate.images import paths
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import segment
from nova_dedup_migrate.storage.index import store


@dataclasses.dataclass(frozen=True)
class Content:
    """What a file, or all files of an index, hold.

    :ivar keys: of each block that is not zero, as often as it is there
    :ivar distinct: of these, each once, in order
    :ivar zeros: blocks of zeros
    :ivar read: bytes that were read for it
    :ivar seconds: that it took, of the processor
    """

    name: str
    keys: numpy.ndarray
    distinct: numpy.ndarray
    zeros: int
    read: int
    seconds: float

    @property
    def size(self) -> int:
        """Bytes, zeros included."""
        return (len(self.keys) + self.zeros) * blocks.BLOCK

    @property
    def zero_share(self) -> float:
        return self.zeros * blocks.BLOCK / self.size if self.size else 0.0

    @property
    def own_share(self) -> float:
        """Share of the blocks that are there once more."""
        if not len(self.keys):
            return 0.0
        return 1 - len(self.distinct) / len(self.keys)


def of_file(path: str) -> Content:
    """Read a file or block device.

    :raises OSError: or paths.PathRefused
    """
    begun = time.thread_time()
    opener = (paths.open_block if path.startswith(paths.DEV + '/')
              else paths.open_file)
    with opener(path, None) as fd:
        found = fingerprints.fingerprint(fd)
    return Content(os.path.basename(path), found.digests,
                   numpy.unique(found.digests), found.zeros, found.read,
                   time.thread_time() - begun)


def of_index(index: store.Index, name: str) -> Content:
    """Return what all files of an index hold."""
    begun = time.thread_time()
    owners = {file.owner for file in index.files()}
    keys = numpy.concatenate([numpy.empty(0, segment.KEY),
                              *index.keys(owners)])
    return Content(name, keys, numpy.unique(keys), 0, 0,
                   time.thread_time() - begun)


def share(content: Content, other: Content) -> float:
    """Return the share of content's blocks that other has, 0 to 1."""
    if not len(content.keys):
        return 1.0
    there = numpy.isin(content.keys, other.distinct)
    return float(numpy.count_nonzero(there) / len(content.keys))


def matrix(contents: Sequence[Content]) -> list[list[float]]:
    """Return for each content the share that each other one has."""
    return [[share(one, other) for other in contents] for one in contents]
