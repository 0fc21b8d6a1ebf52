# SPDX-License-Identifier: Apache-2.0
"""A keyed digest of a few blocks of an image.

Different content can have the same samples, so they prove nothing
alone; they tell apart two disks that go by the same name.  The digest
is BLAKE2b with the caller's key, over the size of the image and, for
each block, its offset (64 bit, big endian) and bytes: the first 16
blocks and 48 at offsets that the key decides.
"""

from __future__ import annotations

import hashlib

from nova_dedup_migrate.images import direct

_HEADER = 16
_SPREAD = 48


def digest(fd: int, key: str) -> str | None:
    """Return 64 hexadecimal digits, None if all blocks are zero.

    It is read past the page cache.

    :param key: hexadecimal digits, of the request
    """
    secret = bytes.fromhex(key)
    size = direct.size(fd)
    result = hashlib.blake2b(size.to_bytes(8, 'big'), key=secret,
                             digest_size=32)
    content = False
    with direct.uncached(fd) as uncached:
        for offset in offsets(size, secret):
            block = direct.read(uncached, offset, direct.BLOCK)
            content = content or any(block)
            result.update(offset.to_bytes(8, 'big'))
            result.update(block)
    return result.hexdigest() if content else None


def offsets(size: int, secret: bytes) -> list[int]:
    """Return the offsets of the blocks of an image, in ascending order."""
    blocks = -(-size // direct.BLOCK)
    chosen = set(range(min(_HEADER, blocks)))
    for number in range(_SPREAD if blocks > _HEADER else 0):
        draw = hashlib.blake2b(number.to_bytes(8, 'big'), key=secret,
                               digest_size=16).digest()
        chosen.add(int.from_bytes(draw, 'big') % blocks)
    return [block * direct.BLOCK for block in sorted(chosen)]
