# SPDX-License-Identifier: Apache-2.0
"""A chain of layers seen as one disk.

A layer has some ranges of the disk: an overlay the clusters that are
allocated in it, an incremental backup what had changed, a full image
everything.  Each byte is that of the newest layer that has it, and is read
from there only, however long the chain is.
"""

from __future__ import annotations

import abc
import bisect
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses

from nova_dedup_migrate import errors

#: Layers of a chain.
MAX_LAYERS = 512
#: Ranges that a map has, at most.
MAX_PIECES = 16 << 20


class ChainTooLong(errors.DedupMigrateError, ValueError):
    """A chain is larger than any there should be."""

    template = 'the chain of images has {count} {what}, more than {limit}'


class Layer(abc.ABC):
    """One layer."""

    @abc.abstractmethod
    def ranges(self) -> Iterable[tuple[int, int]]:
        """Return (offset, length) of what it has, in order."""

    @abc.abstractmethod
    def read(self, offset: int, length: int) -> bytes:
        """Return bytes that it has; fewer at the end of the layer.

        :raises OSError:
        """

    def close(self) -> None:  # noqa: B027 some have nothing to close
        """Free what the layer holds."""


@dataclasses.dataclass(frozen=True)
class Piece:
    """A range of the disk and the number of its layer."""

    offset: int
    length: int
    layer: int


class Map:
    """Where each byte of a disk is.

    :param layers: the newest first
    :param size: bytes of the disk; what layers have beyond is not used
    :raises ChainTooLong:
    """

    def __init__(self, layers: Sequence[Layer], size: int) -> None:
        if len(layers) > MAX_LAYERS:
            raise ChainTooLong(count=len(layers), what='layers',
                               limit=MAX_LAYERS)
        self._layers = list(layers)
        self.pieces: list[Piece] = []
        for number, layer in enumerate(layers):
            self.pieces = list(_beneath(self.pieces, number, (
                (offset, min(length, size - offset))
                for offset, length in layer.ranges() if offset < size)))
            if len(self.pieces) > MAX_PIECES:
                raise ChainTooLong(count=len(self.pieces), what='ranges',
                                   limit=MAX_PIECES)
        self._offsets = [piece.offset for piece in self.pieces]

    def within(self, offset: int, length: int) -> Iterator[Piece]:
        """Yield the pieces of a range, in order."""
        end = offset + length
        index = max(0, bisect.bisect_right(self._offsets, offset) - 1)
        for piece in self.pieces[index:]:
            if piece.offset >= end:
                return
            start = max(piece.offset, offset)
            stop = min(piece.offset + piece.length, end)
            if start < stop:
                yield Piece(start, stop - start, piece.layer)

    def has(self, offset: int, length: int) -> bool:
        """Return whether some layer has each byte of a range."""
        return length == sum(piece.length
                             for piece in self.within(offset, length))

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes of a range; zeros for what no layer has.

        :raises OSError: a layer cannot be read, or has fewer bytes
        """
        result = bytearray(length)
        for piece in self.within(offset, length):
            data = self._layers[piece.layer].read(piece.offset,
                                                  piece.length)
            if len(data) != piece.length:
                raise OSError('layer %d returned %d bytes at %d instead of '
                              '%d' % (piece.layer, len(data), piece.offset,
                                      piece.length))
            at = piece.offset - offset
            result[at:at + piece.length] = data
        return bytes(result)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            for layer in self._layers:
                stack.callback(layer.close)


def _beneath(above: Sequence[Piece], number: int,
             ranges: Iterable[tuple[int, int]]) -> Iterator[Piece]:
    """Yield pieces in order: those above, and of a layer what they lack."""
    waiting = iter(above)
    piece = next(waiting, None)
    reached = 0
    for offset, length in ranges:
        if offset < reached or length < 0:
            raise ValueError('the ranges of layer %d are not in order'
                             % number)
        end = reached = offset + length
        while piece is not None and piece.offset + piece.length <= offset:
            yield piece
            piece = next(waiting, None)
        while offset < end:
            if piece is None or piece.offset >= end:
                yield Piece(offset, end - offset, number)
                break
            if piece.offset > offset:
                yield Piece(offset, piece.offset - offset, number)
            offset = piece.offset + piece.length
            if offset <= end:
                yield piece
                piece = next(waiting, None)
    while piece is not None:
        yield piece
        piece = next(waiting, None)
