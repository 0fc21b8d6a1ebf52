# SPDX-License-Identifier: Apache-2.0
"""What crosses a data connection to cinder-backup-assist.

HTTP/1.1 over TLS.  The first request names the ticket, "Authorization:
Ticket HEX"; the connection then belongs to it and no other connection does.
All numbers are big endian, offsets and lengths in bytes of the volume.

``GET /v1/manifest``
    The headers X-Volume-Size, bytes of the volume, and X-Unit-Size, bytes
    of a unit; the body: the SHA-256 of each unit in order, 32 bytes each.
    The last unit may be shorter.

``POST /v1/stream``
    The body: extents in ascending order, which do not overlap; each begins
    and ends at a unit's border or at the volume's end::

        0  8  offset
        8  8  length, not 0

    The answer's body, until END::

        0  1  kind
        1  8  offset
        9  8  length

        kind       meaning
        0 END      of what was requested; offset and length are 0
        1 DATA     length bytes follow: whole units, at most MAX_DATA
        2 MISSING  the store does not have these units, or other bytes
                   than the backup had

    If the request has exactly "Accept-Encoding: zstd", the answer may have
    "Content-Encoding: zstd".  Its body is then one frame of zstd (RFC 8878),
    which needs a window of at most MAX_WINDOW.

    Frames are in the order in which the store has them, and no unit is in
    two.  Units that are zero are in no frame; the manifest has them.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import struct

END, DATA, MISSING = range(3)
#: Bytes of volume in one frame: a unit is no longer.
MAX_DATA = 16 << 20
#: Of the body of an answer, if both sides have it.
ENCODING = 'zstd'
#: Bytes before a position that decompression may need.
MAX_WINDOW = 8 << 20
#: Extents of one request; the body is 16 bytes for each.
MAX_EXTENTS = 1 << 20
#: Bytes of a SHA-256.
DIGEST = 32
#: Bytes of the largest volume: 64 TiB.
MAX_VOLUME = 1 << 46
MIN_UNIT = 512

_EXTENT = struct.Struct('>QQ')
_FRAME = struct.Struct('>BQQ')


class Malformed(ValueError):
    """What arrived is not of this format; the reason is the message."""


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """:ivar data: of kind DATA"""

    kind: int
    offset: int
    length: int
    data: bytes = b''


def check_geometry(size: int, unit: int) -> None:
    """Check the sizes of a volume and of its units.

    :raises Malformed:
    """
    if not 0 < size <= MAX_VOLUME:
        raise Malformed('the volume has %d bytes, expected 1 to %d'
                        % (size, MAX_VOLUME))
    if not MIN_UNIT <= unit <= MAX_DATA or unit % MIN_UNIT:
        raise Malformed('a unit has %d bytes, expected a multiple of %d of '
                        'at most %d' % (unit, MIN_UNIT, MAX_DATA))


def pack_extents(extents: Sequence[tuple[int, int]]) -> bytes:
    """Encode (offset, length) pairs."""
    return b''.join(_EXTENT.pack(*extent) for extent in extents)


def parse_extents(body: bytes, size: int, unit: int) -> list[tuple[int, int]]:
    """Return the (first unit, units) that a request has.

    :param size: bytes of the volume
    :raises Malformed:
    """
    if not body or len(body) % _EXTENT.size:
        raise Malformed('the extents have %d bytes, expected a multiple of '
                        '%d' % (len(body), _EXTENT.size))
    found, last = [], 0
    for offset, length in _EXTENT.iter_unpack(body):
        end = offset + length
        if offset < last or not length or end > size:
            raise Malformed('there is an extent of %d bytes at %d, after one '
                            'that ends at %d; the volume has %d'
                            % (length, offset, last, size))
        if offset % unit or (end % unit and end != size):
            raise Malformed('the extent of %d bytes at %d is not made of '
                            'units of %d' % (length, offset, unit))
        found.append((offset // unit, -(-length // unit)))
        last = end
    return found


def pack(kind: int, offset: int = 0, length: int = 0) -> bytes:
    """Return the beginning of a frame; the data of DATA follow it."""
    return _FRAME.pack(kind, offset, length)


def parse(read: Callable[[int], bytes], size: int, unit: int
          ) -> Iterator[Frame]:
    """Yield the frames before END as they arrive.

    :param read: returns as many bytes as it is called for, or fewer at the
        end of the stream
    :param size: bytes of the volume
    :raises Malformed:
    """
    left = size
    while True:
        head = read(_FRAME.size)
        if len(head) != _FRAME.size:
            raise Malformed('it ends within a frame')
        kind, offset, length = _FRAME.unpack(head)
        if kind == END:
            return
        if kind not in (DATA, MISSING):
            raise Malformed('there is a frame of kind %d' % kind)
        end = offset + length
        if (not length or end > size or offset % unit
                or (end % unit and end != size)):
            raise Malformed('there is a frame of %d bytes at %d of a volume '
                            'of %d, with units of %d'
                            % (length, offset, size, unit))
        left -= length
        if left < 0:
            raise Malformed('its frames have more than the volume')
        data = b''
        if kind == DATA:
            if length > MAX_DATA:
                raise Malformed('there is a frame of %d bytes' % length)
            data = read(length)
            if len(data) != length:
                raise Malformed('it ends within a frame')
        yield Frame(kind, offset, length, data)
