# SPDX-License-Identifier: Apache-2.0
"""The content of the guest's test pages, in Python.

The definition is in src/pattern.h; this is the reference that the unit
tests hold against the C code, and what a failed verification can be
examined with.  It is far too slow to fill a disk.
"""

import struct

PAGE_BYTES = 4096
ANON_OBJECT = 1 << 40

_MASK = (1 << 64) - 1
_PLAIN_PERIOD = 6
_PLAIN_RUNS = 4


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def page(
    seed: int, obj: int, number: int, version: int = 0, plain: bool = False
) -> bytes:
    """The 4096 bytes of page `number` of object `obj` (a file's number
    on its disk, or ANON_OBJECT) after `version` rewrites; `plain`: the
    form that compresses."""
    x = _mix(seed)
    x = _mix(x ^ obj)
    x = _mix(x ^ number)
    x = _mix(x ^ version) or 1
    words = []
    low = x & 0xFFFFFF
    for i in range(PAGE_BYTES // 8):
        if plain and i % _PLAIN_PERIOD:
            words.append(low + i // _PLAIN_PERIOD % _PLAIN_RUNS)
            continue
        words.append(x)
        x ^= (x << 13) & _MASK
        x ^= x >> 7
        x ^= (x << 17) & _MASK
    return struct.pack('<512Q', *words)
