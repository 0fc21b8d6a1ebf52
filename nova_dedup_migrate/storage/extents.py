# SPDX-License-Identifier: Apache-2.0
"""Which blocks of a disk hold nothing, as its NBD server knows.

base:allocation says what reads as zeros, qemu:allocation-depth which image
of the chain has a range: 1 the top one, 0 none.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.libnbd import nbd

DATA, ZERO, ABSENT = range(3)
DEPTH = 'qemu:allocation-depth'
#: Answers that are taken for one range; what is left is read.
_MAX_ANSWERS = 4096


def connection() -> nbd.NBD:
    """Return a handle that is to be connected, with what kinds() needs."""
    handle = nbd.NBD()
    for context in (nbd.CONTEXT_BASE_ALLOCATION, DEPTH):
        handle.add_meta_context(context)
    return handle


def kinds(disk: nbd.NBD, offset: int, length: int, above_base: bool = False
          ) -> list[int]:
    """Return DATA, ZERO or ABSENT for each block of a range.

    A block is ZERO or ABSENT only if all of it is.

    :param offset: multiple of blocks.BLOCK
    :param above_base: whether to look for ABSENT blocks
    """
    result = [DATA] * blocks.count(length)
    if disk.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION):
        _mark(result, ZERO, offset, _ranges(
            disk, offset, length, nbd.CONTEXT_BASE_ALLOCATION,
            lambda flags: bool(flags & nbd.STATE_ZERO)), length)
    if above_base and disk.can_meta_context(DEPTH):
        _mark(result, ABSENT, offset, _ranges(
            disk, offset, length, DEPTH, lambda depth: depth != 1), length)
    return result


def _ranges(disk: nbd.NBD, offset: int, length: int, context: str,
            match: Callable[[int], bool]) -> Iterator[tuple[int, int]]:
    """Yield (offset, end) of what matches; neighbours are one."""
    found: list[list[int]] = []
    at, end = offset, offset + length
    for _ in range(_MAX_ANSWERS):
        if at >= end:
            break
        entries: list[int] = []

        def collect(name: str, start: int, values: list[int], error: Any,
                    entries: list[int] = entries) -> None:
            if name == context:
                entries.extend(values)

        disk.block_status(end - at, at, collect)
        before = at
        for span, flags in zip(entries[::2], entries[1::2], strict=True):
            stop = min(end, at + span)
            if match(flags):
                if found and found[-1][1] == at:
                    found[-1][1] = stop
                else:
                    found.append([at, stop])
            at = stop
        if at == before:
            # No answer for this context.
            break
    return iter([(start, stop) for start, stop in found])


def _mark(result: list[int], kind: int, offset: int,
          ranges: Iterator[tuple[int, int]], length: int) -> None:
    for start, end in ranges:
        first = -(-(start - offset) // blocks.BLOCK)
        # The last block of a disk may be short.
        stop = (len(result) if end == offset + length
                else (end - offset) // blocks.BLOCK)
        for index in range(first, stop):
            result[index] = kind
