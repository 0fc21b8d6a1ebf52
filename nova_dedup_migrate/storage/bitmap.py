# SPDX-License-Identifier: Apache-2.0
"""Bitmaps of blocks and granules.

Bit n is bit n % 8, counted from the least significant one, of byte n // 8:
the order in which QEMU serializes its dirty bitmaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator

import numpy

#: Bits that are looked at in one step.
_STEP = 8 << 20


class Bitmap:
    """A row of bits, all 0 at first.

    :param size: how many
    :param data: their bytes, copied
    :raises ValueError: data is not of this size, or has bits set beyond it
    """

    def __init__(self, size: int, data: bytes | None = None) -> None:
        self.size = size
        length = (size + 7) // 8
        self._bytes = bytearray(length if data is None else data)
        if len(self._bytes) != length:
            raise ValueError('a bitmap of %d bits has %d bytes, not %d'
                             % (size, length, len(self._bytes)))
        if size % 8 and self._bytes[-1] >> size % 8:
            raise ValueError('the bitmap has bits set beyond its end')

    def __bytes__(self) -> bytes:
        return bytes(self._bytes)

    def __getitem__(self, bit: int) -> bool:
        if not 0 <= bit < self.size:
            raise IndexError(bit)
        return bool(self._bytes[bit // 8] >> bit % 8 & 1)

    def set(self, first: int, count: int = 1) -> None:
        self._fill(first, count, 0xff)

    def clear(self, first: int, count: int = 1) -> None:
        self._fill(first, count, 0)

    def _fill(self, first: int, count: int, byte: int) -> None:
        end = first + count
        if first < 0 or count < 0 or end > self.size:
            raise IndexError((first, count))
        while first < end and first % 8:
            self._one(first, byte)
            first += 1
        while end > first and end % 8:
            end -= 1
            self._one(end, byte)
        self._bytes[first // 8:end // 8] = (
            bytes((byte,)) * (end // 8 - first // 8))

    def _one(self, bit: int, byte: int) -> None:
        mask = 1 << bit % 8
        if byte:
            self._bytes[bit // 8] |= mask
        else:
            self._bytes[bit // 8] &= ~mask

    def count(self) -> int:
        """Return how many bits are set."""
        return int.from_bytes(self._bytes, 'little').bit_count()

    def is_clear(self, first: int, count: int) -> bool:
        """Return whether none of count bits is set."""
        return all(not bits.any()
                   for bits in self._steps(first, first + count))

    def is_set(self, first: int, count: int) -> bool:
        """Return whether all of count bits are set."""
        return all(bits.all() for bits in self._steps(first, first + count))

    def _steps(self, start: int, end: int) -> Iterator[numpy.ndarray]:
        for first in range(start, end, _STEP):
            yield self.bits(first, min(end, first + _STEP))

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield (first, count) of each run of set bits, in order."""
        begun = None
        for start, bits in zip(range(0, self.size, _STEP),
                               self._steps(0, self.size), strict=True):
            edges = numpy.flatnonzero(numpy.diff(
                bits, prepend=numpy.uint8(begun is not None)))
            for edge in edges.tolist():
                if begun is None:
                    begun = start + edge
                else:
                    yield begun, start + edge - begun
                    begun = None
        if begun is not None:
            yield begun, self.size - begun

    def extents(self, unit: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, length) in bytes of each run.

        :param unit: bytes of a bit
        :param size: bytes of the disk, which may end within the last one
        """
        for first, count in self.runs():
            yield (first * unit,
                   min(size, (first + count) * unit) - first * unit)

    def coarser(self, factor: int) -> Bitmap:
        """Return a bitmap of bits that each stand for factor of these.

        A bit is set if all of its bits are.
        """
        result = Bitmap(-(-self.size // factor))
        step = _STEP // factor * factor * 8
        for start in range(0, self.size, step):
            bits = self.bits(start, min(self.size, start + step))
            bits = numpy.concatenate(
                [bits, numpy.ones(-len(bits) % factor, numpy.uint8)])
            packed = numpy.packbits(bits.reshape(-1, factor).all(axis=1),
                                    bitorder='little')
            first = start // factor // 8
            result._bytes[first:first + len(packed)] = packed.tobytes()
        return result

    def bits(self, start: int, end: int) -> numpy.ndarray:
        """Return bits as an array of 0 and 1.

        :param end: of the first one that is not returned
        """
        if not 0 <= start <= end <= self.size:
            raise IndexError((start, end))
        raw = numpy.frombuffer(self._bytes, numpy.uint8,
                               (end + 7) // 8 - start // 8, start // 8
                               ) if end > start else numpy.empty(
                                   0, numpy.uint8)
        bits = numpy.unpackbits(raw, bitorder='little')
        return bits[start % 8:start % 8 + end - start]


def of_extents(extents: Iterable[tuple[int, int]], unit: int, size: int
               ) -> Bitmap:
    """Return the bitmap of every unit that extents touch.

    :param extents: (offset, length) in bytes
    :param size: bytes of the disk
    :raises ValueError: an extent is not within the disk
    """
    result = Bitmap(-(-size // unit))
    for offset, length in extents:
        if offset < 0 or length < 0 or offset + length > size:
            raise ValueError('offset %d, length %d is not within a disk of '
                             '%d bytes' % (offset, length, size))
        if length:
            first = offset // unit
            result.set(first, (offset + length - 1) // unit - first + 1)
    return result
