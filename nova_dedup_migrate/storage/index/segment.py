# SPDX-License-Identifier: Apache-2.0
"""A sorted file of digests and where their blocks are.

A segment is written once and never changed.  All numbers are little
endian::

     0   8  magic "NDINDEX1"
     8   8  n, the number of entries
    16   8  n * 8 keys: the first 8 bytes of each digest as a big-endian
            number, in ascending order
         8  n * 8 places: the number of the file in the catalog in the upper
            24 bits, the block in it in the lower 40

That is 16 bytes an entry, which the kernel maps and drops as it likes.
LMDB needs 26 for the same key and place, and 37 if they come in no order.
A key that two digests have in common costs a read that is not used: what a
place holds is compared with the whole digest by whoever reads it, so an
entry that is wrong or forged does no other harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import os
import struct

import numpy

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import errors

#: Bits of a block's number in a place.
BLOCK_BITS = 40
MAX_FILE = (1 << 24) - 1
#: A place that is none; file 0 does not exist.
NOWHERE = 0
#: Entries of one key that are looked at.
MAX_SAME = 64

_HEADER = struct.Struct('<8sQ')
_MAGIC = b'NDINDEX1'
#: Ranges of keys that are merged one after the other.
_RANGES = 256

KEY = numpy.dtype('<u8')


def keys(digests: bytes) -> numpy.ndarray:
    """Return the keys of digests that follow one another."""
    table = numpy.frombuffer(digests, numpy.dtype('>u8')).reshape(
        -1, blocks.DIGEST // 8)
    return table[:, 0].astype(KEY)


def places(file: int, numbers: numpy.ndarray) -> numpy.ndarray:
    """Return the places of blocks of a file."""
    return (numpy.uint64(file << BLOCK_BITS)
            | numbers.astype(KEY)).astype(KEY)


class Segment:
    """A segment that is mapped.

    :raises IndexDamaged: it is none
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with open(path, 'rb') as file:
                head = file.read(_HEADER.size)
                size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise errors.IndexDamaged(path=path, reason=error) from error
        if len(head) != _HEADER.size:
            raise errors.IndexDamaged(path=path, reason='it is too short')
        magic, self.entries = _HEADER.unpack(head)
        if magic != _MAGIC or size != _HEADER.size + 16 * self.entries:
            raise errors.IndexDamaged(
                path=path, reason='it has %d bytes and begins with %r'
                % (size, head))
        self.keys = self.places = numpy.empty(0, KEY)
        if self.entries:
            table = numpy.memmap(path, KEY, 'r', _HEADER.size,
                                 (2, self.entries))
            # not as memmap, which is slow to slice
            self.keys, self.places = numpy.asarray(table)

    def look_up(self, wanted: numpy.ndarray, allowed: numpy.ndarray,
                found: numpy.ndarray) -> None:
        """Fill in the places of keys that are here.

        :param wanted: sorted keys
        :param allowed: a flag for each file number
        :param found: places; those that are NOWHERE are looked up
        """
        need = numpy.flatnonzero(found == NOWHERE)
        at = numpy.searchsorted(self.keys, wanted[need])
        for _ in range(MAX_SAME):
            inside = at < self.entries
            need, at = need[inside], at[inside]
            same = self.keys[at] == wanted[need]
            need, at = need[same], at[same]
            if not len(need):
                return
            there = self.places[at]
            good = is_allowed(there, allowed)
            found[need[good]] = there[good]
            need, at = need[~good], at[~good] + 1


def is_allowed(found: numpy.ndarray, allowed: numpy.ndarray
               ) -> numpy.ndarray:
    """Return for each place whether its file is allowed.

    :param allowed: a flag for each file number; others are not
    """
    numbers = found >> numpy.uint64(BLOCK_BITS)
    known = numbers < len(allowed)
    return known & allowed[numpy.where(known, numbers, 0)]


def write(path: str, found_keys: numpy.ndarray,
          found_places: numpy.ndarray) -> int:
    """Write a segment; return its entries.

    Of blocks of a file with the same key the first is kept.
    """
    order = numpy.argsort(found_keys, kind='stable')
    return _write(path, [(found_keys[order], found_places[order])])


def merge(path: str, segments: Sequence[Segment], allowed: numpy.ndarray
          ) -> int:
    """Write the entries of segments, but not those of other files.

    :param allowed: a flag for each file number
    """
    return _write(path, _merged(segments, allowed))


def _merged(segments: Sequence[Segment], allowed: numpy.ndarray
            ) -> Iterable[tuple[numpy.ndarray, numpy.ndarray]]:
    bounds = [numpy.uint64(number << 56) for number in range(1, _RANGES)]
    cuts = [[0, *numpy.searchsorted(each.keys, bounds).tolist(),
             each.entries] for each in segments]
    for number in range(_RANGES):
        parts = [slice(cut[number], cut[number + 1]) for cut in cuts]
        found_keys = numpy.concatenate([
            each.keys[part]
            for each, part in zip(segments, parts, strict=True)])
        found_places = numpy.concatenate([
            each.places[part]
            for each, part in zip(segments, parts, strict=True)])
        good = is_allowed(found_places, allowed)
        found_keys, found_places = found_keys[good], found_places[good]
        order = numpy.lexsort((found_places, found_keys))
        yield found_keys[order], found_places[order]


def _write(path: str, parts: Iterable[tuple[numpy.ndarray, numpy.ndarray]]
           ) -> int:
    """Write sorted parts, the one that comes first of each key and file."""
    entries = 0
    with open(path, 'wb') as file, open(path + '.places', 'w+b') as beside:
        os.unlink(path + '.places')
        file.write(bytes(_HEADER.size))
        for found_keys, found_places in parts:
            files = found_places >> numpy.uint64(BLOCK_BITS)
            first = numpy.ones(len(found_keys), bool)
            first[1:] = ((found_keys[1:] != found_keys[:-1])
                         | (files[1:] != files[:-1]))
            file.write(found_keys[first].tobytes())
            beside.write(found_places[first].tobytes())
            entries += int(numpy.count_nonzero(first))
        beside.seek(0)
        while chunk := beside.read(1 << 20):
            file.write(chunk)
        file.seek(0)
        file.write(_HEADER.pack(_MAGIC, entries))
        file.flush()
        os.fsync(file.fileno())
    return entries
