# SPDX-License-Identifier: Apache-2.0
"""Reads wanted ranges of a volume, in the order of objects.

No object is read twice, whatever the order of the ranges; what is zero is
not read.  Each unit is compared with its SHA-256 before it is handed out: a
store that has other bytes, or other files, gives nothing away.  An object
that fails does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import hashlib
import itertools
from typing import BinaryIO

from cinder_backup_assist import errors
from cinder_backup_assist.blockmap import chain
from cinder_backup_assist.blockmap import objects

#: Bytes of a block that is yielded, at most, unless one unit is longer.
MAX_BLOCK = 1 << 20
#: Objects that are open at a time. What each takes in memory is the state
#: of its decompressor, some 4 MiB for bz2.
MAX_OPEN = 32


@dataclasses.dataclass(frozen=True)
class Block:
    """:ivar offset: in the volume"""

    offset: int
    data: bytes


@dataclasses.dataclass(frozen=True)
class Failure:
    """What was wanted of an object and is missing.

    :ivar name: of the object
    :ivar ranges: (offset, length) in the volume
    """

    name: str

    ranges: list[tuple[int, int]]
    reason: str


class Readers:
    """Objects that are being read, and are left open for what comes next.

    Who reads a volume from its beginning to its end in several requests
    goes through the objects of all backups of the chain at once.  Each is
    then still read once.

    :param open_object: opens an object, as the store has it; raises
        StoreFailed
    :param limit: objects that are open
    """

    def __init__(self, open_object: Callable[[chain.ChainObject], BinaryIO],
                 limit: int = MAX_OPEN) -> None:
        self._open_object = open_object
        self._limit = limit
        self._readers: dict[int, objects.ObjectReader] = {}

    def at(self, owner: int, entry: chain.ChainObject, position: int
           ) -> objects.ObjectReader:
        """Return a reader of an object that is at a byte of the volume.

        :raises DamagedObject:
        :raises StoreFailed:
        """
        reader = self._readers.pop(owner, None)
        if reader is not None and not reader.can_reach(position):
            reader.close()
            reader = None
        if reader is None:
            reader = objects.ObjectReader(entry, self._open_object(entry))
        self._readers[owner] = reader
        while len(self._readers) > self._limit:
            self.drop(next(iter(self._readers)))
        reader.skip_to(position)
        return reader

    def drop(self, owner: int) -> None:
        """Close an object, if it is open."""
        reader = self._readers.pop(owner, None)
        if reader is not None:
            reader.close()

    def close(self) -> None:
        for owner in list(self._readers):
            self.drop(owner)


def read(blocks: chain.BlockMap, extents: Sequence[tuple[int, int]],
         readers: Readers) -> Iterator[Block | Failure]:
    """Yield what is wanted of a volume, unless it is zero.

    :param extents: (first unit, units), by first unit, not overlapping
    """
    for owner, runs in itertools.groupby(blocks.runs(extents),
                                         key=lambda run: run.owner):
        yield from _read_object(blocks, owner, list(runs), readers)


def _read_object(blocks: chain.BlockMap, owner: int, runs: list[chain.Run],
                 readers: Readers) -> Iterator[Block | Failure]:
    entry = blocks.object(owner)
    ranges: list[tuple[int, int]] = []
    for run in runs:
        start = run.start * blocks.unit
        end = min(start + run.count * blocks.unit, blocks.length)
        ranges.append((start, end - start))
    step = max(MAX_BLOCK // blocks.unit, 1) * blocks.unit
    try:
        while ranges:
            start, length = ranges[0]
            reader = readers.at(owner, entry, start)
            data = reader.read(min(step, length))
            yield from _verified(blocks, entry, start, data)
            if len(data) == length:
                del ranges[0]
            else:
                ranges[0] = (start + len(data), length - len(data))
        if reader.position >= entry.offset + entry.length:
            readers.drop(owner)
    except (errors.DamagedObject, errors.StoreFailed) as error:
        readers.drop(owner)
        yield Failure(entry.name, ranges, str(error))


def _verified(blocks: chain.BlockMap, entry: chain.ChainObject, offset: int,
              data: bytes) -> Iterator[Block | Failure]:
    """Yield what of data is what the backup had, and what is not."""
    view = memoryview(data)
    first = offset // blocks.unit
    good = [hashlib.sha256(view[at:at + blocks.unit]).digest()
            == blocks.digest(first + number)
            for number, at in enumerate(range(0, len(data), blocks.unit))]
    if all(good):
        yield Block(offset, data)
        return
    at = 0
    for is_good, group in itertools.groupby(good):
        end = min(len(data), at + len(list(group)) * blocks.unit)
        if is_good:
            yield Block(offset + at, data[at:end])
        else:
            yield Failure(entry.name, [(offset + at, end - at)],
                          'it has other bytes than the backup had')
        at = end
