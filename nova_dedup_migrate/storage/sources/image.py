# SPDX-License-Identifier: Apache-2.0
"""Blocks of an image or of a chain of images, by range reads.

Without digests of the image a block is looked for where it is in the disk:
an instance's disk began as a copy of its image, and its snapshots are
copies of its disk.  So the images must be raw.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import chain
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage.sources import base


class ImageSource(base.Source):
    """Reads a chain of images.

    :param layers: the newest first; each block is read once, from the
        newest that has it
    :param size: bytes of the disk
    :param digests: digest -> offset; default: each block is where it is in
        the disk that is built
    :param name: for reports
    :param cost: as it is known
    """

    def __init__(self, layers: Sequence[chain.Layer], size: int,
                 digests: Mapping[bytes, int] | None = None,
                 name: str = 'image',
                 cost: base.Cost | None = None) -> None:
        self.name = name
        self.cost = cost or base.Cost(rate=50e6, latency=0.02)
        self._map = chain.Map(layers, size)
        self._digests = digests

    def have(self, wanted: Sequence[blocks.Block]) -> list[bool]:
        return [self._offset(block) is not None for block in wanted]

    def read(self, wanted: Sequence[blocks.Block]) -> list[bytes | None]:
        found: list[bytes | None] = [None] * len(wanted)
        places = sorted(
            (offset, number) for number, block in enumerate(wanted)
            if (offset := self._offset(block)) is not None)
        try:
            for first, count in _neighbours(places, wanted):
                group = places[first:first + count]
                offset = group[0][0]
                last = group[-1]
                data = self._map.read(
                    offset, last[0] + wanted[last[1]].length - offset)
                for at, number in group:
                    found[number] = data[at - offset:at - offset
                                         + wanted[number].length]
        except OSError as error:
            raise errors.SourceFailed(name=self.name,
                                      reason=error) from error
        return found

    def _offset(self, block: blocks.Block) -> int | None:
        """Return where a block may be in the chain."""
        offset = (block.offset if self._digests is None
                  else self._digests.get(block.digest))
        if offset is None or not self._map.has(offset, block.length):
            return None
        return offset

    def close(self) -> None:
        self._map.close()


def _neighbours(places: Sequence[tuple[int, int]],
                wanted: Sequence[blocks.Block]
                ) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of places that follow one another."""
    first = 0
    for index in range(1, len(places) + 1):
        if index == len(places) or (
                places[index][0] != places[index - 1][0]
                + wanted[places[index - 1][1]].length):
            yield first, index - first
            first = index
