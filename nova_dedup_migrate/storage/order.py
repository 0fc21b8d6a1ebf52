# SPDX-License-Identifier: Apache-2.0
"""In which order the blocks of a running guest's disk are read.

What holds no data comes first.  Nothing is read for it, and if the time of
the destination ends before the pass does, it is proven: of an overlay the
mirror would otherwise copy what is in the base.

What the guest writes during a pass comes at its end: a block that is read
and then written again was read, sent and proven in vain.  QEMU's record of
writes says which these are, so all bits of the pass are cleared at its
beginning.  That proves nothing, and each range is cleared once more before
it is looked at and read.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence

from nova_dedup_migrate.storage import bitmap

#: Bytes after which the record of writes is looked at again, at least.
WINDOW = 64 << 20
#: Bytes without data that come first; fewer stay with what is around them,
#: because each range takes calls of QEMU.
HOLE = 512 << 10
#: Looks in one pass.
LOOKS = 256
#: Ranges of a pass, at most; one of more is not sorted.
_MAX_RANGES = 1024


def hot_last(wanted: Sequence[tuple[int, int]], size: int, granularity: int,
             clear: Callable[[int, int], None],
             written: Callable[[], bitmap.Bitmap],
             filled: Callable[[int, int], Sequence[bool]]
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
    :param filled: returns which granules of an offset and length may hold
        data; may be wrong
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
    data: list[tuple[int, int]] = []
    for offset, length in _windows(whole, WINDOW):
        for value, part in _parts(filled(offset, length), offset, length,
                                  granularity, offset // granularity):
            if not value and part[1] >= HOLE:
                yield part
            elif data and sum(data[-1]) == part[0]:
                data[-1] = data[-1][0], data[-1][1] + part[1]
            else:
                data.append(part)
    late: list[tuple[int, int]] = []
    looked = window
    for offset, length in _windows(data, window):
        if looked >= window:
            hot, looked = written(), 0
        looked += length
        for value, part in _parts(hot, offset, length, granularity):
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


def _parts(bits: bitmap.Bitmap | Sequence[bool], offset: int, length: int,
           granularity: int, before: int = 0
           ) -> Iterator[tuple[bool, tuple[int, int]]]:
    """Yield (value, (offset, length)) of neighbours with equal bits.

    :param before: granules of the disk that have no bit
    """
    end = offset + length
    first, stop = offset // granularity, -(-end // granularity)
    start = first
    for number in range(first + 1, stop + 1):
        value = bool(bits[start - before])
        if number == stop or bool(bits[number - before]) != value:
            at = start * granularity
            yield value, (at, min(end, number * granularity) - at)
            start = number
