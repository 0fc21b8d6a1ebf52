# SPDX-License-Identifier: Apache-2.0
"""Reads a listing as strictly as its format is, for tests of the lister."""

import dataclasses
import struct

PAGE = 4096
UNKNOWN = (1 << 64) - 1
#: Kinds of extents
DATA, METADATA = 0, 1

_NUMBERS = ('extents', 'data_pages', 'metadata_pages', 'cached', 'dirty',
            'writeback', 'not_read', 'no_disk', 'no_place', 'files', 'us',
            'cpu_us', 'memory', 'disk_bytes', 'examined')


@dataclasses.dataclass
class Disk:
    bus: int
    size: int
    sector: int
    flags: int
    domain: int
    root: int
    path: tuple
    pci_bus: int
    channel: int
    target: int
    unit: int
    name: str
    serial: str
    wwid: str


@dataclasses.dataclass
class Extent:
    gpa: int
    offset: int
    pages: int
    disk: int
    kind: int


@dataclasses.dataclass
class Listing:
    nonce: int
    disks: list
    extents: list
    skipped: list           # (reason, pages, text)
    status: int
    method: int
    numbers: dict

    @property
    def pages(self):
        return sum(e.pages for e in self.extents)


def _check(good, what):
    if not good:
        raise AssertionError('malformed listing: ' + what)


def _text(data):
    text, _, rest = data.partition(b'\0')
    _check(not rest.strip(b'\0'), 'text %r' % data)
    return text.decode('ascii')


def frames(data):
    """Yield (type, payload) of each frame."""
    at = number = 0
    while at < len(data):
        magic, kind, zero, length, count = struct.unpack_from(
            '<4sHHII', data, at)
        _check(magic == b'NPCL' and not zero and length <= 65536
               and count == number, 'header of frame %d' % number)
        payload = data[at + 16:at + 16 + length]
        _check(len(payload) == length, 'cut off')
        yield kind, payload
        at += 16 + length
        number += 1


def _disk(index, payload):
    fields = struct.unpack('<IIQIIIBBH8sB7sIIQ32s64s64s32s', payload)
    (number, bus, size, sector, flags, domain, root, steps, zero, path,
     pci_bus, zeros, channel, target, unit, name, serial, wwid,
     rest) = fields
    _check(number == index and not zero and not any(zeros)
           and not any(rest) and steps <= 8 and not any(path[steps:]),
           'disk')
    return Disk(bus, size, sector, flags, domain, root, tuple(path[:steps]),
                pci_bus, channel, target, unit, _text(name), _text(serial),
                _text(wwid))


def _extents(payload, disks, end):
    for one, two in struct.iter_unpack('<QQ', payload):
        extent = Extent(one & ~0xfff, two & ~0x1ff, (one & 0xfff) + 1,
                        two & 0x3f, two >> 6 & 7)
        length = extent.pages * PAGE
        _check(extent.gpa >= end, 'order')
        _check(extent.kind <= METADATA and extent.disk < len(disks)
               and extent.offset + length <= disks[extent.disk].size,
               'extent %s' % extent)
        end = extent.gpa + length
        yield extent


def _varint(payload, at):
    value = shift = 0
    while True:
        byte = payload[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def _compact(payload, disks, end):
    """The extents of a COMPACT frame, one by one."""
    base, = struct.unpack_from('<Q', payload)
    at, found = 8, []
    while at < len(payload):
        disk, kind, count, zero, offset = struct.unpack_from('<BBHIQ',
                                                             payload, at)
        _check(count and not zero and kind <= METADATA, 'group')
        places = struct.unpack_from('<%dH' % count, payload, at + 16)
        at += 16 + 2 * count
        steps = []
        for _ in places:
            step, at = _varint(payload, at)
            steps.append(step)
        for place, step in zip(places, steps, strict=True):
            offset += step // 2 * PAGE
            pages = 1
            if step & 1:
                more, at = _varint(payload, at)
                pages = more + 2
            found.append(Extent(base + place * PAGE, offset, pages, disk,
                                kind))
    found.sort(key=lambda extent: extent.gpa)
    for extent in found:
        _check(extent.gpa >= end, 'order')
        end = extent.gpa + extent.pages * PAGE
        _check(extent.offset + extent.pages * PAGE
               <= disks[extent.disk].size, 'extent %s' % extent)
    return found


def parse(data):
    """Return the Listing that `data` is from its first byte to its last."""
    all_frames = list(frames(data))
    kind, begin = all_frames[0]
    _check(kind == 1 and len(begin) == 64, 'begin')
    version, page, nonce = struct.unpack_from('<IIQ', begin)
    _check(version == 1 and page == PAGE and not any(begin[16:]), 'begin')
    disks, extents, skipped = [], [], []
    end = 0
    for kind, payload in all_frames[1:-1]:
        if kind == 2:
            _check(not extents and not skipped, 'order of frames')
            disks.append(_disk(len(disks), payload))
        elif kind in (3, 6):
            _check(payload, 'no extents in a frame')
            extents += (_extents if kind == 3 else _compact)(payload, disks,
                                                             end)
            end = extents[-1].gpa + extents[-1].pages * PAGE
        else:
            _check(kind == 4 and len(payload) > 16, 'type %d' % kind)
            reason, zero, pages = struct.unpack_from('<IIQ', payload)
            _check(not zero, 'skipped')
            skipped.append((reason, pages, payload[16:].decode('ascii')))
    kind, payload = all_frames[-1]
    _check(kind == 5 and len(payload) == 160 and not any(payload[128:]),
           'end')
    status, method, *numbers = struct.unpack_from('<II15Q', payload)
    numbers = dict(zip(_NUMBERS, numbers, strict=True))
    _check(numbers['extents'] == len(extents), 'number of extents')
    for kind, name in enumerate(('data_pages', 'metadata_pages')):
        _check(numbers[name] == sum(e.pages for e in extents
                                    if e.kind == kind), name)
    return Listing(nonce, disks, extents, skipped, status, method, numbers)
