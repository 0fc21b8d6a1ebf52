# SPDX-License-Identifier: Apache-2.0
"""Decoder of the COMPACT frames of a page-cache listing.

lister/include/listing-format.h has the format. A large guest has millions of
extents, so a group is decoded as arrays. What is decoded is checked against
the frame here; against disks and the extents before, by the parser.
"""

import struct
import typing

import numpy

from nova_dedup_migrate.pagecache import listingformat as form

_BASE = struct.Struct('<Q')
_GROUP = struct.Struct('<BBHIQ')
#: Bytes of a varint: 56 bits, which no product with a page exceeds too far.
_LONGEST = 8
_MORE = 0x80
_ONE = numpy.uint64(1)
_PAGE = numpy.uint64(form.PAGE)
#: Pages from the first to the last of a group: offsets stay below 2^63.
_MOST_PAGES = form.MAX_OFFSET // form.PAGE


def decode(payload: memoryview) -> numpy.ndarray:
    """Return the extents of a frame, ascending by address.

    :returns: rows of two 64-bit words, as those of EXTENTS
    :raises ListingError: they are not what the format has
    """
    if len(payload) < _BASE.size + _GROUP.size + 3:
        form.refuse('COMPACT of %d bytes', len(payload))
    base, = _BASE.unpack_from(payload)
    if base % form.PAGE or base >= form.MAX_OFFSET:
        form.refuse('COMPACT: base %#x', base)
    data = numpy.frombuffer(payload, numpy.uint8)
    groups, at, left = [], _BASE.size, form.MAX_COMPACT_EXTENTS
    while at < len(payload):
        group, at = _group(data, at, base, left)
        left -= len(group)
        groups.append(group)
    words = groups[0] if len(groups) == 1 else numpy.concatenate(groups)
    return words[numpy.argsort(words[:, 0], kind='stable')]


def _group(data: numpy.ndarray, at: int, base: int,
           most: int) -> tuple[numpy.ndarray, int]:
    """Return (words, where the next group begins)."""
    if len(data) - at < _GROUP.size:
        form.refuse('COMPACT: a group is cut off')
    disk, kind, count, zero, first = _GROUP.unpack(
        data[at:at + _GROUP.size].tobytes())
    at += _GROUP.size
    if not 0 < count <= most or len(data) - at < 3 * count:
        form.refuse('COMPACT: group of %d extents', count)
    if zero or first % form.SECTOR or first >= form.MAX_OFFSET:
        form.refuse('COMPACT: reserved field is not 0, or offset %#x', first)
    if disk >= form.MAX_DISKS or kind >= len(form.KINDS):
        form.refuse('COMPACT: disk %d, kind %d', disk, kind)
    places = data[at:at + 2 * count].view('<u2').astype(numpy.uint64)
    at += 2 * count
    steps, at = _varints(data, at, count)
    more = (steps & _ONE).astype(bool)
    lengths, at = _varints(data, at, int(more.sum()))
    if lengths.size and int(lengths.max()) > form.PAGE - 2:
        form.refuse('COMPACT: extent of %d pages', int(lengths.max()) + 2)
    steps >>= _ONE
    # In floating point first: the sum of hostile steps has more than 64 bits
    if steps[0] or float(steps.astype(float).sum()) > _MOST_PAGES:
        form.refuse('COMPACT: offsets of a group are not in order')
    pages = numpy.zeros(count, numpy.uint64)
    pages[more] = lengths + _ONE
    words = numpy.empty((count, 2), numpy.uint64)
    words[:, 0] = (numpy.uint64(base) + places * _PAGE) | pages
    words[:, 1] = ((numpy.uint64(first) + numpy.cumsum(steps) * _PAGE)
                   | numpy.uint64(kind << 6 | disk))
    return words, at


def _varints(data: numpy.ndarray, at: int,
             count: int) -> tuple[numpy.ndarray, int]:
    """Return (count numbers, where the next byte is)."""
    if not count:
        return numpy.zeros(0, numpy.uint64), at
    part = data[at:at + count * _LONGEST]
    ends = numpy.flatnonzero(part < _MORE)[:count]
    if len(ends) < count:
        form.refuse('COMPACT: a number is cut off or too long')
    starts = numpy.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    sizes = ends - starts
    longest = int(sizes.max())
    if longest >= _LONGEST:
        form.refuse('COMPACT: a number is too long')
    found: typing.Any = numpy.zeros(count, numpy.uint64)
    for number in range(longest + 1):
        # Beyond its end a number has no more bits
        bits = part[numpy.minimum(starts + number, ends)] & 0x7f
        bits[sizes < number] = 0
        found |= bits.astype(numpy.uint64) << numpy.uint64(7 * number)
    return found, at + int(ends[-1]) + 1
