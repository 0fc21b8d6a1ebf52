# SPDX-License-Identifier: Apache-2.0
"""The page-cache map, which QEMU's x-dedup-load-map reads.

The format is specified in qemu/src/migration/dedup/map-format.h: a header,
the names of the disks, and extents of guest-physical memory with the place
on a disk whose bytes they hold. All numbers are little endian. This module
accepts and refuses exactly what QEMU does.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import fcntl
import os
import struct
import typing

from nova_dedup_migrate.pagecache import errors

MAGIC = b'QDEDUPM1'
VERSION = 1
PAGE = 4096
SECTOR = 512
MAX_DISKS = 64
MAX_EXTENTS = 1 << 24
#: Pages in one extent.
MAX_PAGES = 1 << 24
#: Addresses and offsets end here, as QEMU's signed 64-bit offsets do.
MAX_OFFSET = (1 << 63) - 1

_SEALS = (fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
          | fcntl.F_SEAL_SEAL)
_HEADER = struct.Struct('<8sIIIIQ32s')
_DISK = struct.Struct('256s')
_EXTENT = struct.Struct('<QQII')


@dataclasses.dataclass(frozen=True)
class Extent:
    """Guest memory that holds the bytes of a disk.

    :ivar gpa: guest-physical address, bytes, a multiple of 4096
    :ivar offset: place on the disk as the guest sees it, bytes, a multiple
        of 512
    :ivar pages: length in pages of 4096 bytes, 1 to MAX_PAGES
    :ivar disk: index into PageCacheMap.disks
    """

    gpa: int
    offset: int
    pages: int
    disk: int

    @property
    def end(self) -> int:
        """Guest-physical address of the first byte behind it."""
        return self.gpa + self.pages * PAGE


@dataclasses.dataclass(frozen=True)
class PageCacheMap:
    """A whole map.

    :ivar disks: qdev ID or QOM path of each device, 1 to MAX_DISKS of
        them, at most 255 bytes of UTF-8 each
    :ivar extents: Extent, ascending by address, not overlapping
    """

    disks: tuple[str, ...]
    extents: tuple[Extent, ...] = ()

    @property
    def pages(self) -> int:
        """Pages of all extents."""
        return sum(extent.pages for extent in self.extents)

    def encode(self) -> bytes:
        """Return the map as bytes.

        :raises MapError: the map breaks a rule of the format
        """
        parts = [encode_disks(self.disks, len(self.extents))]
        end = 0
        for number, extent in enumerate(self.extents):
            _check_extent(number, extent, len(self.disks), end)
            end = extent.end
            parts.append(_EXTENT.pack(extent.gpa, extent.offset,
                                      extent.pages, extent.disk))
        return b''.join(parts)

    def to_memfd(self, name: str = 'page-cache-map') -> int:
        """Return a sealed descriptor for QEMU, at offset 0.

        The caller closes it.

        :param name: shown in /proc/PID/fd
        :raises MapError: the map breaks a rule of the format
        """
        return to_memfd([self.encode()], name)


def encode_disks(disks: Sequence[str], extents: int) -> bytes:
    """Return what precedes the extents of a map.

    :param disks: as in PageCacheMap
    :param extents: how many of them follow
    :raises MapError: a name or number breaks a rule of the format
    """
    names = [_encode_name(name) for name in disks]
    _check_counts(len(names), extents)
    return b''.join([_HEADER.pack(MAGIC, VERSION, _HEADER.size, len(names),
                                  0, extents, b''),
                     *map(_DISK.pack, names)])


def to_memfd(parts: Iterable[bytes], name: str = 'page-cache-map') -> int:
    """Return a sealed descriptor of some bytes, at offset 0.

    :param parts: iterable of bytes
    :param name: shown in /proc/PID/fd
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for part in parts:
            data = memoryview(part)
            while data:
                data = data[os.write(fd, data):]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def decode(data: bytes) -> PageCacheMap:
    """Return the PageCacheMap of untrusted bytes.

    :param data: bytes
    :raises MapError: the map breaks a rule of the format
    """
    view = memoryview(data).cast('B')
    disks, extents = _decode_header(view)
    size = _HEADER.size + disks * _DISK.size + extents * _EXTENT.size
    # Checked before anything of that size is allocated.
    if len(view) < size:
        _refuse('it ends too early: %d bytes of %d', len(view), size)
    if len(view) > size:
        _refuse('it is longer than it says: %d bytes, not %d',
                len(view), size)
    at = _HEADER.size + disks * _DISK.size
    names = tuple(
        _decode_name(number, name) for number, (name,)
        in enumerate(_DISK.iter_unpack(view[_HEADER.size:at])))
    found = []
    end = 0
    for number, fields in enumerate(_EXTENT.iter_unpack(view[at:])):
        extent = Extent(*fields)
        _check_extent(number, extent, disks, end)
        end = extent.end
        found.append(extent)
    return PageCacheMap(names, tuple(found))


def _refuse(reason: str, *values: object) -> typing.NoReturn:
    """Raise MapError."""
    raise errors.MapError(reason=reason % values)


def _decode_header(view: memoryview) -> tuple[int, int]:
    """Return the numbers of (disks, extents)."""
    if len(view) < _HEADER.size:
        _refuse('it ends too early: %d bytes of %d', len(view),
                _HEADER.size)
    magic, version, length, disks, zero, extents, reserved = (
        _HEADER.unpack_from(view))
    if magic != MAGIC:
        _refuse('wrong magic')
    if version != VERSION or length != _HEADER.size:
        _refuse('version %d with a header of %d bytes is not supported',
                version, length)
    if zero or any(reserved):
        _refuse('reserved fields are not zero')
    _check_counts(disks, extents)
    return disks, extents


def _check_counts(disks: int, extents: int) -> None:
    if not 1 <= disks <= MAX_DISKS:
        _refuse('number of disks is out of bounds: %d, not 1 to %d', disks,
                MAX_DISKS)
    if extents > MAX_EXTENTS:
        _refuse('too many extents: %d, at most %d', extents, MAX_EXTENTS)


def _check_extent(number: int, extent: Extent, disks: int,
                  end: int) -> None:
    """Check one extent.

    :param end: address of the end of the one before
    """
    place = 'extent %d ' % number
    if extent.gpa % PAGE or extent.offset % SECTOR:
        _refuse(place + 'is not aligned: address %#x, offset %#x',
                extent.gpa, extent.offset)
    length = extent.pages * PAGE
    if (not 1 <= extent.pages <= MAX_PAGES
            or not 0 <= extent.gpa <= MAX_OFFSET - length
            or not 0 <= extent.offset <= MAX_OFFSET - length):
        _refuse(place + 'is out of bounds: address %#x, offset %#x, %d pages',
                extent.gpa, extent.offset, extent.pages)
    if not 0 <= extent.disk < disks:
        _refuse(place + 'names disk %d, of %d listed', extent.disk, disks)
    if extent.gpa < end:
        _refuse(place + 'overlaps the one before or is not sorted: address '
                '%#x, expected at least %#x', extent.gpa, end)


def _encode_name(name: str) -> bytes:
    # surrogateescape: what decode() returned can be encoded again.
    data = name.encode('utf-8', 'surrogateescape')
    if not data or len(data) >= _DISK.size or 0 in data:
        _refuse('name of a disk is empty, longer than %d bytes or has a '
                'NUL: %r', _DISK.size - 1, name)
    return data


def _decode_name(number: int, data: bytes) -> str:
    if not data[0] or data[-1]:
        _refuse('name of disk %d is empty or too long', number)
    return data.split(b'\0', 1)[0].decode('utf-8', 'surrogateescape')
