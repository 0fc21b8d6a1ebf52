# SPDX-License-Identifier: Apache-2.0
"""Frames and payloads of a page-cache listing.

It is specified in lister/include/listing-format.h; names and limits are
those of that header.  Each payload is decoded here; parser checks
them against each other.
"""

import dataclasses
import struct
import typing

from nova_dedup_migrate.pagecache import errors

MAGIC = b'NPCL'
VERSION = 1
PAGE = 4096
SECTOR = 512
#: Addresses end below this, and so do sizes of disks here.
MAX_OFFSET = 1 << 63
UNKNOWN = (1 << 64) - 1

MAX_PAYLOAD = 65536
MAX_DISKS = 64
MAX_EXTENTS = 1 << 24
MAX_SKIPPED = 64
MAX_TEXT = 160
MAX_PCI_STEPS = 8
MAX_TIME_MS = 600000
MIN_MEMORY_KIB = 4096

BEGIN, DISK, EXTENTS, SKIPPED, END, COMPACT, REQUEST = 1, 2, 3, 4, 5, 6, 16
#: In the number of a request's frame: this host reads COMPACT.
READS_COMPACT = 1
#: Extents in a COMPACT frame.
MAX_COMPACT_EXTENTS = 4080

BUSES = ('unknown', 'virtio-blk', 'scsi', 'nvme')
KINDS = ('data', 'metadata')
STATUSES = ('whole', 'ended: time', 'ended: memory', 'ended: extents',
            'ended: reads', 'failed')
METHODS = ('none', 'pages', 'files')

#: magic, type, 0, length of the payload, number of the frame
HEADER = struct.Struct('<4sHHII')
BEGIN_PAYLOAD = struct.Struct('<IIQ48s')
DISK_PAYLOAD = struct.Struct('<IIQIIIBBH8sB7sIIQ32s64s64s32s')
EXTENT_LEN = 16
SKIPPED_PAYLOAD = struct.Struct('<IIQ')
END_PAYLOAD = struct.Struct('<II15Q32s')
REQUEST_PAYLOAD = struct.Struct('<IIQII40s')

HAS_PCI, HAS_SCSI, READ_ONLY = 1, 2, 4
Buffer: typing.TypeAlias = bytes | memoryview
_PAGE_SIZES = (4096, 16384, 65536)
_SECTOR_SIZES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk as the guest sees it.

    :ivar bus: one of BUSES
    :ivar size: bytes
    :ivar sector: logical sector size, bytes
    :ivar pci: path from the root bus to the controller, as tuple of
        (device, function); None if there is none
    :ivar pci_domain: of that path
    :ivar pci_root: number of the bus where it begins
    :ivar pci_bus: the controller's, as the guest numbers it
    :ivar scsi: (channel, target), None if it has no such address
    :ivar unit: SCSI logical unit, or NVMe namespace
    :ivar name: the guest's kernel's
    """

    bus: str = 'unknown'
    size: int = 0
    sector: int = 512
    pci: tuple[tuple[int, int], ...] | None = None
    pci_domain: int = 0
    pci_root: int = 0
    pci_bus: int = 0
    scsi: tuple[int, int] | None = None
    unit: int = 0
    read_only: bool = False
    name: str = ''
    serial: str = ''
    wwid: str = ''


@dataclasses.dataclass(frozen=True)
class Skipped:
    """Content that is not listed.

    :ivar reason: number
    :ivar pages: of 4096 bytes, None if not known
    :ivar text: a line
    """

    reason: int
    pages: int | None
    text: str


@dataclasses.dataclass(frozen=True)
class End:
    """The counters of the guest; see the header.  None: not known.

    :ivar status: one of STATUSES
    :ivar method: one of METHODS
    """

    status: str = 'whole'
    method: str = 'none'
    extents: int | None = None
    data_pages: int | None = None
    metadata_pages: int | None = None
    cached_pages: int | None = None
    dirty_pages: int | None = None
    writeback_pages: int | None = None
    unread_pages: int | None = None
    diskless_pages: int | None = None
    unplaced_pages: int | None = None
    files: int | None = None
    time_us: int | None = None
    cpu_us: int | None = None
    memory: int | None = None
    read_bytes: int | None = None
    examined_pages: int | None = None


@dataclasses.dataclass(frozen=True)
class Request:
    """The request that the host sends over a port.

    :ivar nonce: not 0
    :ivar time_ms: limit of time, 1 to MAX_TIME_MS
    :ivar memory_kib: limit of the lister's memory, from MIN_MEMORY_KIB on
    :ivar extents: limit of their number, 1 to MAX_EXTENTS
    """

    nonce: int
    time_ms: int = 5000
    memory_kib: int = 65536
    extents: int = 1 << 22

    def encode(self) -> bytes:
        """Return the frame as bytes."""
        return HEADER.pack(
            MAGIC, REQUEST, 0, REQUEST_PAYLOAD.size, READS_COMPACT
        ) + REQUEST_PAYLOAD.pack(VERSION, self.time_ms, self.nonce,
                                 self.memory_kib, self.extents, b'')


def refuse(reason: str, *values: object) -> typing.NoReturn:
    """Raise ListingError."""
    raise errors.ListingError(reason=reason % values)


def decode_header(data: Buffer) -> tuple[int, int, int]:
    """Return (type, length of the payload, number of the frame)."""
    magic, kind, zero, length, number = HEADER.unpack(data)
    if magic != MAGIC:
        refuse('frame without the magic')
    if zero:
        refuse('reserved field of a header is not 0')
    if length > MAX_PAYLOAD:
        refuse('frame of %d bytes, at most %d are allowed', length,
               MAX_PAYLOAD)
    return kind, length, number


def decode_begin(data: Buffer) -> tuple[int, int]:
    """Return (page size of the guest's kernel, nonce)."""
    version, page_size, nonce, zero = _fields(BEGIN_PAYLOAD, data, 'BEGIN')
    if version != VERSION:
        refuse('version %d is not supported', version)
    if page_size not in _PAGE_SIZES:
        refuse('page size of %d', page_size)
    _zero(zero, 'BEGIN')
    return page_size, nonce


def decode_disk(data: Buffer, number: int) -> Disk:
    """Return a Disk.

    :param number: the index it has to have
    """
    (index, bus, size, sector, flags, domain, root, steps, zero, path,
     pci_bus, zeros, channel, target, unit, name, serial, wwid,
     rest) = _fields(DISK_PAYLOAD, data, 'DISK')
    what = 'disk %d' % number
    if index != number:
        refuse('disk %d instead of disk %d', index, number)
    if bus >= len(BUSES) or flags & ~(HAS_PCI | HAS_SCSI | READ_ONLY):
        refuse('%s: unknown bus %d or flags %#x', what, bus, flags)
    if size >= MAX_OFFSET or sector not in _SECTOR_SIZES:
        refuse('%s: size %d, sectors of %d', what, size, sector)
    _zero(zero or any(zeros) or any(rest), what)
    if flags & HAS_PCI:
        if not 1 <= steps <= MAX_PCI_STEPS:
            refuse('%s: PCI path of %d steps', what, steps)
        _zero(path[steps:], what)
        pci = tuple((step >> 3, step & 7) for step in path[:steps])
    else:
        _zero(domain or root or steps or pci_bus or any(path), what)
        pci = None
    scsi = (channel, target) if flags & HAS_SCSI else None
    if scsi is None:
        _zero(channel or target, what)
        if BUSES[bus] != 'nvme':
            _zero(unit, what)
    return Disk(
        bus=BUSES[bus], size=size, sector=sector, pci=pci,
        pci_domain=domain, pci_root=root, pci_bus=pci_bus, scsi=scsi,
        unit=unit, read_only=bool(flags & READ_ONLY),
        name=_padded(name, what), serial=_padded(serial, what),
        wwid=_padded(wwid, what))


def decode_skipped(data: Buffer) -> Skipped:
    """Return a Skipped."""
    at = SKIPPED_PAYLOAD.size
    if not at < len(data) <= at + MAX_TEXT:
        refuse('SKIPPED of %d bytes', len(data))
    reason, zero, pages = SKIPPED_PAYLOAD.unpack(data[:at])
    _zero(zero, 'SKIPPED')
    text = _text(bytes(data[at:]), 'SKIPPED')
    return Skipped(reason, pages if pages not in (0, UNKNOWN) else None,
                   text)


def decode_end(data: Buffer) -> End:
    """Return an End."""
    status, method, *numbers, zero = _fields(END_PAYLOAD, data, 'END')
    if status >= len(STATUSES) or method >= len(METHODS):
        refuse('END with status %d, method %d', status, method)
    _zero(zero, 'END')
    return End(STATUSES[status], METHODS[method],
               *(None if number == UNKNOWN else number
                 for number in numbers))


def _fields(form: struct.Struct, data: Buffer,
            what: str) -> tuple[typing.Any, ...]:
    if len(data) != form.size:
        refuse('%s of %d bytes, not %d', what, len(data), form.size)
    return form.unpack(data)


def _zero(value: bytes | int, what: str) -> None:
    if any(value) if isinstance(value, bytes) else value:
        refuse('%s: an unused or reserved field is not 0', what)


def _padded(data: bytes, what: str) -> str:
    text, _, rest = data.partition(b'\0')
    _zero(rest, what)
    return _text(text, what)


def _text(data: bytes, what: str) -> str:
    if not all(0x20 <= byte <= 0x7e for byte in data):
        refuse('%s: text has other characters than printable ASCII', what)
    return data.decode('ascii')
