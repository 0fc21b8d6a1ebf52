# SPDX-License-Identifier: Apache-2.0
"""In which order the blocks of a running guest's disk are read.

What the guest writes during a pass comes at its end: a block that is read
and then written again was read, sent and proven in vain.  QEMU's record of
writes says which these are, so all bits of the pass are cleared at its
beginning.  That proves nothing, and each range is cleared once more before
it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

from nova_dedup_migrate.storage import bitmap

#: Bytes after which the record of writes is looked at again, at least.
WINDOW = 64 << 20
#: Looks in one pass.
LOOKS = 256
#: Ranges of a pass, at most; one of more is not sorted.
_MAX_RANGES = 1024


def hot_last(wanted: Sequence[tuple[int, int]], size: int, granularity: int,
             clear: Callable[[int, int], None],
             written: Callable[[], bitmap.Bitmap]
             ) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of ranges in the order they are to be read.

    They are sorted while they are read.

    :param wanted: (offset, length) in bytes
    :param size: bytes of the disk
    :param granularity: bytes of a bit of the record of writes; ranges are
        widened to whole ones
    :param clear: called with offset and length
    :param written: returns the granules that the guest has written since
        they were cleared
    """
    window = max(WINDOW, -(-size // LOOKS))
    window -= window % granularity
    whole = []
    for offset, length in wanted:
        end = min(size, -(-(offset + length) // granularity) * granularity)
        offset -= offset % granularity
        whole.append((offset, end - offset))
    if len(whole) > _MAX_RANGES or sum(
            length for _, length in whole) <= window:
        yield from whole
        return
    for offset, length in whole:
        clear(offset, length)
    late: list[tuple[int, int]] = []
    for offset, length in _windows(whole, window):
        hot = written()
        first, end = offset // granularity, -(-(offset + length)
                                              // granularity)
        for value, start, stop in _runs(hot, first, end):
            part = (start * granularity,
                    min(size, stop * granularity) - start * granularity)
            if value:
                late.append(part)
            else:
                yield part
    yield from late


def _windows(ranges: Sequence[tuple[int, int]], window: int
             ) -> Iterator[tuple[int, int]]:
    for offset, length in ranges:
        for at in range(offset, offset + length, window):
            yield at, min(window, offset + length - at)


def _runs(bits: bitmap.Bitmap, first: int, end: int
          ) -> Iterator[tuple[bool, int, int]]:
    """Yield (value, start, stop) of equal neighbours."""
    start = first
    for number in range(first + 1, end + 1):
        if number == end or bits[number] != bits[start]:
            yield bits[start], start, number
            start = number
