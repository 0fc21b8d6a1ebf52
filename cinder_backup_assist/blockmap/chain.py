# SPDX-License-Identifier: Apache-2.0
"""Joins a full backup and its increments to one map of the volume.

Each unit is taken from the newest object that has it; older ones are not
read for it.  What a unit is, the newest list of SHA-256 says.  Units that
are zero are known by their SHA-256 and not read at all.

The map has 36 bytes for each unit, 1.1 MiB for a GiB of volume.  They are
in files without a name, so that the kernel decides what of it is in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import hashlib
import tempfile
from typing import Any
from typing import BinaryIO

import numpy

from cinder_backup_assist import errors
from cinder_backup_assist.blockmap import metadata

#: Backups of a chain.
MAX_DEPTH = 1024
#: Units that are looked at in one step.
_STEP = 1 << 20
_NONE = -1


@dataclasses.dataclass(frozen=True)
class Layer:
    """One backup of a chain, as the store has it.

    :ivar name: UUID
    :ivar prefix: service_metadata
    :ivar read: returns a function that reads a file of it, given the
        file's name
    """

    backup_id: str
    volume_id: str
    parent_id: str | None
    prefix: str
    open: Callable[[str], BinaryIO]


@dataclasses.dataclass(frozen=True)
class ChainObject:
    """One object of a chain.

    :ivar layer: position of its backup in the chain, the full one is 0
    :ivar offset: of its first byte in the volume
    :ivar length: bytes of the volume it has
    :ivar compression: one of metadata.COMPRESSIONS
    """

    layer: int
    name: str
    offset: int
    length: int
    compression: str


@dataclasses.dataclass(frozen=True)
class Run:
    """Units in a row that one object has.

    :ivar owner: number of the object in the chain
    """

    owner: int
    start: int
    count: int


class BlockMap:
    """Where the units of a volume are; close() it after use.

    :ivar unit: bytes of a unit
    :ivar units: how many there are
    :ivar length: bytes of the volume
    :ivar depth: backups of the chain
    :ivar extras: extra_metadata of each backup, the full one's first
    """

    def __init__(self, prefixes: Sequence[str], extras: Sequence[Any],
                 layers: numpy.ndarray,
                 objects: numpy.ndarray, owners: BinaryIO,
                 digests: BinaryIO, unit: int, units: int, length: int
                 ) -> None:
        self.unit = unit
        self.units = units
        self.length = length
        self.depth = len(prefixes)
        self.extras = extras
        self._prefixes = prefixes
        self._layers = layers
        self._objects = objects
        self._files = (owners, digests)
        self._owners = _mapped(owners, '<i4', (units,))
        self._digests = _mapped(digests, 'u1', (units, 32))

    def close(self) -> None:
        for file in self._files:
            file.close()

    def __enter__(self) -> BlockMap:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def size_of(self, number: int) -> int:
        """Return the bytes of a unit; those of the last one may be fewer."""
        return min(self.unit, self.length - number * self.unit)

    def digest(self, number: int) -> bytes:
        """Return the SHA-256 of a unit."""
        return self._digests[number].tobytes()

    def manifest(self) -> Iterator[bytes]:
        """Yield the SHA-256 of all units, in order."""
        for start in range(0, self.units, _STEP // 32):
            yield self._digests[start:start + _STEP // 32].tobytes()

    def object(self, owner: int) -> ChainObject:
        """Return an object by its number in the chain."""
        layer = int(numpy.searchsorted(self._layers, owner, 'right')) - 1
        row = self._objects[owner]
        return ChainObject(
            layer, metadata.object_name(self._prefixes[layer],
                                        int(row['number'])),
            int(row['offset']), int(row['length']),
            metadata.COMPRESSIONS[row['compression']])

    def runs(self, extents: Sequence[tuple[int, int]]) -> list[Run]:
        """Return where wanted units are, in the order of objects.

        Units that are zero are left out.

        :param extents: (first unit, units), by first unit, not overlapping
        """
        zero = numpy.frombuffer(hashlib.sha256(bytes(self.unit)).digest(),
                                'u1')
        last = self.units - 1
        tail = hashlib.sha256(bytes(self.size_of(last))).digest()
        found: list[Run] = []
        for first, count in extents:
            for start in range(first, first + count, _STEP):
                end = min(start + _STEP, first + count)
                owners = numpy.array(self._owners[start:end])
                is_zero = (self._digests[start:end] == zero).all(axis=1)
                if end == self.units:
                    is_zero[-1] = self.digest(last) == tail
                owners[is_zero] = _NONE
                found += _runs(owners, start)
        found.sort(key=lambda run: (run.owner, run.start))
        return found


def join(layers: Sequence[Layer], directory: str | None = None) -> BlockMap:
    """Return the map of a chain.

    :param layers: the newest backup first, the full one last
    :param directory: for files without a name, as of tempfile
    :raises MalformedBackup: a file of a backup is malformed
    :raises MalformedChain: the backups do not fit together
    :raises StoreFailed: a file cannot be read
    """
    newest = layers[0]
    _check_parents(layers)
    digests = tempfile.TemporaryFile(dir=directory)
    try:
        owners = tempfile.TemporaryFile(dir=directory)
        try:
            return _join(layers, newest, owners, digests)
        except BaseException:
            owners.close()
            raise
    except BaseException:
        digests.close()
        raise


def _join(layers: Sequence[Layer], newest: Layer, owners: BinaryIO,
          digests: BinaryIO) -> BlockMap:
    with newest.open(newest.prefix + '_sha256file') as file:
        known = metadata.read_digests(file.read, newest.prefix, digests)
    digests.flush()
    _check_identity(newest, known)
    if not known.count:
        raise _malformed(newest, 'the list of SHA-256 is empty')
    owners.truncate(known.count * 4)
    owner = _mapped(owners, '<i4', (known.count,))
    owner[:] = _NONE
    parts, firsts, extras, count = [], [], [], 0
    end = 0
    for layer in reversed(layers):
        with layer.open(layer.prefix + '_metadata') as file:
            found = metadata.read_metadata(file.read, layer.prefix)
        _check_identity(layer, found)
        if found.parent_id != layer.parent_id:
            raise _malformed(newest, 'the parent of %s is %s in the database '
                             'and %s in the store' % (
                                 layer.backup_id, layer.parent_id,
                                 found.parent_id))
        if count + len(found.objects) > metadata.MAX_OBJECTS:
            raise _malformed(newest, 'there are more than %d objects'
                             % metadata.MAX_OBJECTS)
        end = _own(owner, found, known.unit, count, newest, end)
        firsts.append(count)
        parts.append(found.objects)
        extras.append(found.extra)
        count += len(found.objects)
    _check_whole(owner, known.unit, newest)
    length = min(end, known.count * known.unit)
    if length <= (known.count - 1) * known.unit:
        raise _malformed(newest, 'its list of SHA-256 has %d units, its '
                         'objects end at byte %d' % (known.count, end))
    return BlockMap([layer.prefix for layer in reversed(layers)], extras,
                    numpy.array(firsts), numpy.concatenate(parts), owners,
                    digests, known.unit, known.count, length)


def _own(owner: numpy.ndarray, found: metadata.Metadata, unit: int,
         first: int, newest: Layer, end: int) -> int:
    """Give the units of a backup's objects to them.

    :param first: number of the backup's first object in the chain
    :param end: of the volume, as the older backups have it
    :returns: the same with this backup
    """
    end = max(end, found.end)
    starts, lengths = found.objects['offset'], found.objects['length']
    ends = starts + lengths
    odd = (starts % unit != 0) | ((ends % unit != 0) & (ends != end))
    if odd.any():
        raise _malformed(newest, 'an object of %s has bytes %d to %d of the '
                         'volume, and units have %d' % (
                             found.backup_id, starts[odd][0], ends[odd][0],
                             unit))
    for number, (start, stop) in enumerate(zip(
            (starts // unit).tolist(), (-(-ends // unit)).tolist(),
            strict=True), first):
        owner[start:stop] = number
    return end


def _check_parents(layers: Sequence[Layer]) -> None:
    newest = layers[0]
    if len(layers) > MAX_DEPTH:
        raise _malformed(newest, 'it has more than %d backups' % MAX_DEPTH)
    for child, parent in zip(layers, [*layers[1:], None], strict=True):
        expected = parent.backup_id if parent is not None else None
        if child.parent_id != expected:
            raise _malformed(newest, 'the parent of %s is %s, not %s' % (
                child.backup_id, child.parent_id, expected))


def _check_identity(layer: Layer,
                    found: metadata.Metadata | metadata.Digests) -> None:
    for name in ('backup_id', 'volume_id'):
        if getattr(found, name) != getattr(layer, name):
            raise _malformed(layer, '%s is %s in the database and %.80r in '
                             'the store' % (name, getattr(layer, name),
                                            getattr(found, name)))


def _check_whole(owner: numpy.ndarray, unit: int, newest: Layer) -> None:
    for start in range(0, len(owner), _STEP):
        missing = owner[start:start + _STEP] == _NONE
        if missing.any():
            raise _malformed(newest, 'no object has the bytes of the volume '
                             'from %d on'
                             % ((start + int(missing.argmax())) * unit))


def _runs(owners: numpy.ndarray, start: int) -> list[Run]:
    """Return the runs of equal owners, without those of _NONE."""
    borders = numpy.flatnonzero(numpy.diff(owners)) + 1
    starts = numpy.concatenate(([0], borders))
    counts = numpy.diff(numpy.concatenate((starts, [len(owners)])))
    return [Run(owner, start + first, count)
            for owner, first, count in zip(
                owners[starts].tolist(), starts.tolist(), counts.tolist(),
                strict=True) if owner != _NONE]


def _mapped(file: BinaryIO, kind: str, shape: tuple[int, ...]
            ) -> numpy.ndarray:
    return numpy.memmap(file, kind, 'r+', shape=shape)


def _malformed(layer: Layer, reason: str) -> errors.MalformedChain:
    return errors.MalformedChain(backup_id=layer.backup_id, reason=reason)
