# SPDX-License-Identifier: Apache-2.0
"""Reads the metadata and the list of SHA-256 of one backup.

The package's docstring has the format.  All of it is hostile: it is read
as a stream, has limits, and offsets, lengths and names are checked.  Names
of objects are not kept but rebuilt from their numbers, so that none leads
out of the backup.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import re
from typing import Any
from typing import BinaryIO

import numpy

from cinder_backup_assist import errors
from cinder_backup_assist.blockmap import jsonstream
from nova_dedup_migrate import values

#: Bytes of a volume: 64 TiB. The maps take 36 bytes a unit, on disk.
MAX_VOLUME = 1 << 46
#: Bytes of a unit, the bytes of which one SHA-256 is.
MIN_UNIT = 512
MAX_UNIT = 16 << 20
#: Objects of one backup; each takes 21 bytes of memory.
MAX_OBJECTS = 4 << 20
#: Bytes of the metadata of one object, as Cinder writes it, and more.
_OBJECT_TEXT = 1024
#: Bytes of a SHA-256 in the list: indentation, quotes, comma.
_DIGEST_TEXT = 96
#: Bytes of everything else.
_OTHER_TEXT = 4 * jsonstream.PIECE

#: What an object may be compressed with; Cinder has several names for one.
COMPRESSIONS = ('none', 'zlib', 'bz2', 'zstd')
_NAMES = {'none': 0, 'off': 0, 'no': 0, 'zlib': 1, 'gzip': 1, 'bz2': 2,
          'bzip2': 2, 'zstd': 3}

#: An object: where it is in the volume, its number, its compression.
OBJECT = numpy.dtype([('offset', '<i8'), ('length', '<i8'),
                      ('number', '<i4'), ('compression', 'u1')])
_VERSION = '1.0.0'


@dataclasses.dataclass(frozen=True)
class Metadata:
    """What the metadata of a backup says.

    :ivar objects: array of OBJECT, by offset; none overlaps another
    :ivar extra: extra_metadata for the driver's readers
    """

    backup_id: str
    volume_id: str
    parent_id: str | None
    objects: numpy.ndarray
    extra: Any

    @property
    def end(self) -> int:
        """The first byte of the volume after the last object."""
        if not len(self.objects):
            return 0
        return int(self.objects['offset'][-1] + self.objects['length'][-1])


@dataclasses.dataclass(frozen=True)
class Digests:
    """:ivar unit: bytes of a unit
    :ivar count: of the units
    """

    backup_id: str
    volume_id: str
    unit: int
    count: int


def object_name(prefix: str, number: int) -> str:
    """Return the name of an object, as Cinder makes it."""
    return '%s-%05d' % (prefix, number)


def read_metadata(read: Callable[[int], bytes], prefix: str) -> Metadata:
    """Read PREFIX_metadata.

    :param read: as of jsonstream.JsonStream
    :raises MalformedBackup:
    """
    name = prefix + '_metadata'
    stream = jsonstream.JsonStream(
        read, MAX_OBJECTS * _OBJECT_TEXT + _OTHER_TEXT)
    found: dict[str, Any] = {}
    try:
        for member in stream.members():
            if member == 'objects':
                found[member] = _objects(stream, prefix)
            else:
                found[member] = stream.value()
        _check_version(found)
        return Metadata(
            _text(found, 'backup_id'), _text(found, 'volume_id'),
            _text(found, 'parent_id') if found.get('parent_id') else None,
            _member(found, 'objects'), found.get('extra_metadata'))
    except jsonstream.Malformed as error:
        raise errors.MalformedBackup(name=name, reason=error) from error


def read_digests(read: Callable[[int], bytes], prefix: str,
                 file: BinaryIO) -> Digests:
    """Read PREFIX_sha256file; write each SHA-256, 32 bytes, to a file.

    :param read: as of jsonstream.JsonStream
    :raises MalformedBackup:
    """
    name = prefix + '_sha256file'
    most = MAX_VOLUME // MIN_UNIT
    stream = jsonstream.JsonStream(read, most * _DIGEST_TEXT + _OTHER_TEXT)
    found: dict[str, Any] = {}
    count = 0
    try:
        for member in stream.members():
            if member != 'sha256s':
                found[member] = stream.value()
                continue
            found[member] = True
            # Cinder writes names in order: the size of a unit is known.
            most = MAX_VOLUME // _unit(found)
            for some in stream.digests():
                count += len(some) // 32
                if count > most:
                    raise jsonstream.Malformed(
                        'it has more than %d SHA-256' % most)
                file.write(some)
        _check_version(found)
        _member(found, 'sha256s')
        return Digests(_text(found, 'backup_id'), _text(found, 'volume_id'),
                       _unit(found), count)
    except jsonstream.Malformed as error:
        raise errors.MalformedBackup(name=name, reason=error) from error


def _objects(stream: jsonstream.JsonStream, prefix: str) -> numpy.ndarray:
    pattern = re.compile(re.escape(prefix) + r'-([0-9]{5,8})')
    parts, rows = [], []
    count = 0
    for element in stream.elements():
        count += 1
        if count > MAX_OBJECTS:
            raise jsonstream.Malformed('it has more than %d objects'
                                       % MAX_OBJECTS)
        rows.append(_object(element, pattern, prefix))
        if len(rows) == 65536:
            parts.append(numpy.array(rows, OBJECT))
            rows = []
    parts.append(numpy.array(rows, OBJECT))
    objects = numpy.concatenate(parts)
    objects = objects[numpy.argsort(objects['offset'], kind='stable')]
    ends = objects['offset'] + objects['length']
    if (ends[:-1] > objects['offset'][1:]).any():
        at = int(numpy.argmax(ends[:-1] > objects['offset'][1:]))
        raise jsonstream.Malformed(
            'two objects have the bytes of the volume from %d on'
            % objects['offset'][at + 1])
    if len(numpy.unique(objects['number'])) != len(objects):
        raise jsonstream.Malformed('an object occurs twice')
    return objects


def _object(element: Any, pattern: re.Pattern, prefix: str
            ) -> tuple[int, int, int, int]:
    if not isinstance(element, dict) or len(element) != 1:
        raise jsonstream.Malformed('an object is no object of one member')
    (name, entry), = element.items()
    matched = pattern.fullmatch(name)
    if matched is None or object_name(prefix, int(matched[1])) != name:
        raise jsonstream.Malformed(
            'the object %.200r is not named %s-NNNNN' % (name, prefix))
    if not isinstance(entry, dict):
        raise jsonstream.Malformed('the object %s has no attributes' % name)
    offset: Any = entry.get('offset')
    length: Any = entry.get('length')
    if (not values.is_count(offset, MAX_VOLUME)
            or not values.is_count(length, MAX_VOLUME - offset)
            or length == 0):
        raise jsonstream.Malformed(
            'the object %s has offset %.40r and length %.40r, and a volume '
            'has at most %d bytes' % (name, offset, length, MAX_VOLUME))
    compression = entry.get('compression')
    if not isinstance(compression, str) or compression not in _NAMES:
        raise jsonstream.Malformed(
            'the object %s has the compression %.40r, and known are %s'
            % (name, compression, ', '.join(sorted(_NAMES))))
    return offset, length, int(matched[1]), _NAMES[compression]


def _check_version(found: dict[str, Any]) -> None:
    if _member(found, 'version') != _VERSION:
        raise jsonstream.Malformed('it has version %.40r, and known is %s'
                                   % (found['version'], _VERSION))


def _unit(found: dict[str, Any]) -> int:
    unit = _member(found, 'chunk_size')
    if (not values.is_count(unit, MAX_UNIT) or unit < MIN_UNIT
            or unit % MIN_UNIT):
        raise jsonstream.Malformed(
            'chunk_size is %.40r, expected a multiple of %d of at most %d'
            % (unit, MIN_UNIT, MAX_UNIT))
    return unit


def _text(found: dict[str, Any], name: str) -> str:
    value = _member(found, name)
    if not isinstance(value, str) or len(value) > 255:
        raise jsonstream.Malformed('%s is %.80r, expected a text'
                                   % (name, value))
    return value


def _member(found: dict[str, Any], name: str) -> Any:
    if name not in found:
        raise jsonstream.Malformed('it lacks %s' % name)
    return found[name]
