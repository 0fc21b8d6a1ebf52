# SPDX-License-Identifier: Apache-2.0
"""Makes listings for tests, right ones and wrong ones.

The other half of pagecache.parser, written from the header
lister/include/listing-format.h; it checks nothing.
"""

import dataclasses
import struct

from nova_dedup_migrate.pagecache import listingformat as form

GIB = 1 << 30


def frame(kind, number, payload, **wrong):
    """Return a frame; wrong replaces magic, zero, length."""
    return form.HEADER.pack(
        wrong.get('magic', form.MAGIC), kind, wrong.get('zero', 0),
        wrong.get('length', len(payload)), number) + payload


def begin(nonce=0, page_size=4096, version=1, zero=b''):
    return form.BEGIN_PAYLOAD.pack(version, page_size, nonce, zero)


def disk(number, given, **wrong):
    """Return the payload of a listingformat.Disk."""
    path = bytes(device << 3 | function
                 for device, function in given.pci or ())
    values = {
        'index': number, 'bus': form.BUSES.index(given.bus),
        'size': given.size, 'sector': given.sector,
        'flags': ((given.pci is not None) * form.HAS_PCI
                  | (given.scsi is not None) * form.HAS_SCSI
                  | given.read_only * form.READ_ONLY),
        'domain': given.pci_domain, 'root': given.pci_root,
        'steps': len(path), 'zero': 0, 'path': path,
        'pci_bus': given.pci_bus, 'zeros': b'',
        'channel': (given.scsi or (0, 0))[0],
        'target': (given.scsi or (0, 0))[1], 'unit': given.unit,
        'name': given.name.encode(), 'serial': given.serial.encode(),
        'wwid': given.wwid.encode(), 'rest': b''}
    values.update(wrong)
    return form.DISK_PAYLOAD.pack(*values.values())


def extents(*given):
    """Return the payload of (gpa, pages, offset, disk[, kind])."""
    return b''.join(
        struct.pack('<QQ', gpa | pages - 1,
                    offset | (kind[0] if kind else 0) << 6 | number)
        for gpa, pages, offset, number, *kind in given)


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7f | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def group(given, base, **wrong):
    """Return a group of (gpa, pages, offset, disk, kind), all the same."""
    given = sorted(given, key=lambda one: one[2])
    _, _, first, number, kind = given[0]
    values = {'disk': number, 'kind': kind, 'count': len(given), 'zero': 0,
              'first': first, **wrong}
    steps, lengths, last = b'', b'', first
    for _, pages, offset, _, _ in given:
        steps += varint((offset - last) // 4096 << 1 | (pages > 1))
        lengths += varint(pages - 2) if pages > 1 else b''
        last = offset
    return (struct.pack('<BBHIQ', *values.values())
            + b''.join(struct.pack('<H', (one[0] - base) // 4096)
                       for one in given) + steps + lengths)


def compact(*given, base=None):
    """Return the payload of a COMPACT frame of such extents."""
    base = min(one[0] for one in given) if base is None else base
    groups = {}
    for one in given:
        groups.setdefault((one[3], one[4], one[2] % 4096), []).append(one)
    return struct.pack('<Q', base) + b''.join(
        group(groups[key], base) for key in sorted(groups))


def skipped(text, reason=1, pages=0, zero=0):
    return form.SKIPPED_PAYLOAD.pack(reason, zero, pages) + text.encode()


def end(given=None, zero=b'', **fields):
    """Return the payload of a listingformat.End."""
    given = dataclasses.replace(given or form.End(), **fields)
    status, method, *numbers = dataclasses.astuple(given)
    return form.END_PAYLOAD.pack(
        form.STATUSES.index(status), form.METHODS.index(method),
        *(form.UNKNOWN if number is None else number
          for number in numbers), zero)


def listing(*payloads):
    """Return frames of (type, payload), numbered in order."""
    return b''.join(frame(kind, number, payload)
                    for number, (kind, payload) in enumerate(payloads))


#: A disk as virtio-blk of a q35 guest has it.
VDA = form.Disk(bus='virtio-blk', size=GIB, pci=((2, 0), (0, 0)), pci_bus=1,
                name='vda')


def small(nonce=0, disks=(VDA,), given=((0, 2, 4096, 0),), skips=(),
          **fields):
    """Return a right listing with few extents."""
    return listing(
        (form.BEGIN, begin(nonce)),
        *((form.DISK, disk(number, one))
          for number, one in enumerate(disks)),
        *((form.EXTENTS, extents(one)) for one in given),
        *((form.SKIPPED, skipped(text)) for text in skips),
        (form.END, end(extents=len(given), **fields)))
