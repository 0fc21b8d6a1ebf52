# SPDX-License-Identifier: Apache-2.0
"""The data channel between two agents: what is sent in it.

The channel is TLS; both ends show certificates of the cloud's authority
(tls.py).  All numbers are big endian::

    client                                     server
      "NDCHAN1\\0", ticket (32 bytes) -------->  takes the ticket, once
      <------------------------------- OK, or FAILED and closes
      request ------------------------------->
      <------------------------ answer, or FAILED
      ... one request after the other

    frame
         0  4  bytes of the payload
         4  1  type
         5     payload

    request    payload                      answer
    1 HAVE     blocks                       16: one byte each, 0 or 1
    2 READ     blocks                       16: for each block 4 bytes of
                                            length, 0 for none, and bytes
    3 MANIFEST bits 8, bitmap of blocks     16: a part of the manifest, any
                                            number of times; one of no
                                            bytes ends it
    4 PROVEN   canary offset 8, canary 512, 16: nothing
               bits 8, bitmap of granules
    5 WRITTEN  nothing                      16: a part of bits 8, bitmap of
                                            granules, any number of times;
                                            one of no bytes ends it
    types of answers: 16 OK, 17 FAILED (a text of at most 1024 bytes)
    block: digest 32, offset 8, length 4

There are at most 64 blocks in a request (2 MiB in an answer).  A frame
that is longer than its type may be closes the channel before anything is
allocated for it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import struct

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import canary as canaries
from nova_dedup_migrate.storage.channel import errors
from nova_dedup_migrate.storage.sources import base

MAGIC = b'NDCHAN1\0'
TICKET = 32
HAVE, READ, MANIFEST, PROVEN, WRITTEN = range(1, 6)
OK, FAILED = 16, 17
MAX_REASON = 1024
#: Bytes of one part of a manifest or bitmap.
MAX_PART = 64 << 10

HEADER = struct.Struct('>IB')
_BLOCK = struct.Struct('>32sQI')
_LENGTH = struct.Struct('>I')
_CANARY = struct.Struct('>Q512s')
_BITS = struct.Struct('>Q')
#: Bits of a bitmap, at most.
_MAX_BITS = blocks.MAX_SIZE // blocks.BLOCK

#: Type -> bytes of a payload, at most.
LIMITS = {
    HAVE: base.MAX_BLOCKS * _BLOCK.size,
    READ: base.MAX_BLOCKS * _BLOCK.size,
    MANIFEST: _BITS.size + _MAX_BITS // 8,
    PROVEN: _CANARY.size + _BITS.size + _MAX_BITS // 8,
    WRITTEN: 0,
    OK: base.MAX_BLOCKS * (blocks.BLOCK + _LENGTH.size),
    FAILED: MAX_REASON,
}
REQUESTS = (HAVE, READ, MANIFEST, PROVEN, WRITTEN)


def frame(kind: int, payload: bytes) -> bytes:
    if len(payload) > LIMITS[kind]:
        raise ValueError('%d bytes in a frame of type %d'
                         % (len(payload), kind))
    return HEADER.pack(len(payload), kind) + payload


def read(receive: Callable[[int], bytes], kinds: Sequence[int]
         ) -> tuple[int, bytes]:
    """Return (type, payload) of the next frame.

    :param receive: returns exactly as many bytes as it is called for
    :param kinds: types that may come
    :raises ChannelBroken: it is none of these, or too long
    """
    length, kind = HEADER.unpack(receive(HEADER.size))
    if kind not in kinds or length > LIMITS[kind]:
        raise errors.ChannelBroken(
            reason='a frame of type %d with %d bytes came' % (kind, length))
    return kind, receive(length) if length else b''


def pack_blocks(wanted: Sequence[blocks.Block]) -> bytes:
    return b''.join(_BLOCK.pack(block.digest, block.offset, block.length)
                    for block in wanted)


def unpack_blocks(data: bytes) -> list[blocks.Block]:
    """:raises ChannelBroken:"""
    found = [blocks.Block(*each) for each in _each(_BLOCK, data)]
    for block in found:
        if (not 0 < block.length <= blocks.BLOCK
                or block.offset > blocks.MAX_SIZE):
            raise errors.ChannelBroken(reason='a block of %d bytes at %d'
                                       % (block.length, block.offset))
    return found


def pack_content(content: Sequence[bytes | None]) -> bytes:
    parts = []
    for data in content:
        parts += [_LENGTH.pack(len(data or b'')), data or b'']
    return b''.join(parts)


def unpack_content(data: bytes, count: int) -> list[bytes | None]:
    """:raises ChannelBroken: it is not that of count blocks"""
    found: list[bytes | None] = []
    at = 0
    while at < len(data) and len(found) < count:
        if at + _LENGTH.size > len(data):
            break
        length, = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > blocks.BLOCK or at + length > len(data):
            break
        found.append(data[at:at + length] if length else None)
        at += length
    if at != len(data) or len(found) != count:
        raise errors.ChannelBroken(reason='the answer has not the %d blocks '
                                   'that were requested' % count)
    return found


def pack_bitmap(bits: bitmap.Bitmap) -> bytes:
    return _BITS.pack(bits.size) + bytes(bits)


def unpack_bitmap(data: bytes) -> bitmap.Bitmap:
    """:raises ChannelBroken:"""
    try:
        size, = _BITS.unpack_from(data)
        if size > _MAX_BITS:
            raise ValueError('it has %d bits' % size)
        return bitmap.Bitmap(size, data[_BITS.size:])
    except (ValueError, struct.error) as error:
        raise errors.ChannelBroken(
            reason='a bitmap is malformed: %s' % error) from error


def bitmap_bytes(bits: int) -> int:
    """Return the bytes of a packed bitmap."""
    return _BITS.size + -(-bits // 8)


def pack_proven(proven: bitmap.Bitmap, canary: canaries.Canary) -> bytes:
    return _CANARY.pack(canary.offset, canary.data) + pack_bitmap(proven)


def unpack_proven(data: bytes) -> tuple[bitmap.Bitmap, canaries.Canary]:
    """:raises ChannelBroken:"""
    if len(data) < _CANARY.size:
        raise errors.ChannelBroken(reason='there is no canary')
    return (unpack_bitmap(data[_CANARY.size:]),
            canaries.Canary(*_CANARY.unpack_from(data)))


def _each(form: struct.Struct, data: bytes) -> list[tuple]:
    if len(data) % form.size:
        raise errors.ChannelBroken(reason='%d bytes are no multiple of %d'
                                   % (len(data), form.size))
    return list(form.iter_unpack(data))
