# SPDX-License-Identifier: Apache-2.0
"""Members of a RAID1 of Linux (md), made without mdadm."""

import struct

SECTOR = 512
_SUPERBLOCK = 8     # sector of a superblock 1.2


def write_superblock(path, start, slot, members, offset, sectors):
    """Make a part of an image a member in sync of a clean RAID1.

    The part begins at the sector ``start``; the array's data, ``sectors``
    long, begin ``offset`` sectors into it. The layout is that of struct
    mdp_superblock_1 in Linux's include/uapi/linux/raid/md_p.h.
    """
    head = struct.pack('<IIII16s32s', 0xa92b4efc, 1, 0, 0, b'm' * 16,
                       b'mirror')
    array = struct.pack('<QIIQIII', 0, 1, 0, sectors, 0, members, 0)
    reshape = bytes(28)
    member = struct.pack('<QQQQII16sBBHI', offset, sectors, _SUPERBLOCK, 0,
                         slot, 0, bytes([slot]) * 16, 0, 0, 0, 0)
    # never to be resynchronized
    state = struct.pack('<QQQ', 0, 1, (1 << 64) - 1)
    roles = b''.join(struct.pack('<H', n) for n in range(members))

    def whole(checksum):
        return (head + array + reshape + member + state
                + struct.pack('<II', checksum, members) + bytes(32) + roles)

    words = whole(0)
    words += bytes(-len(words) % 4)
    total = sum(word for word, in struct.iter_unpack('<I', words))
    with open(path, 'r+b') as disk:
        disk.seek((start + _SUPERBLOCK) * SECTOR)
        disk.write(whole((total & 0xffffffff) + (total >> 32) & 0xffffffff))
