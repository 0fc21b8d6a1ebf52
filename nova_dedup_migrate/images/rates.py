# SPDX-License-Identifier: Apache-2.0
"""How fast a disk is read.

Requests are as the destination of a migration makes them: several at a
time, spread over the disk, past the page cache.  There are two rates: of
requests of 1 MiB, for pages whose blocks are neighbours, and of 4 KiB at
random offsets, for pages whose blocks are not.  Holes are left out,
because reading them says nothing about storage.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import errno
import os
import random
import threading
import time

from nova_dedup_migrate.images import direct

#: Bytes a request.
REQUEST = 1 << 20
#: Requests at a time.
DEPTH = 8
#: Bytes of a scattered request: a page.
PAGE = direct.BLOCK
#: Scattered requests, at most; each costs a look for data as well.
PAGES = 512
#: Share of the time for sequential requests that scattered ones may take.
SCATTERED = 0.5
#: Offsets that are looked at for data.
_TRIES = 1024


def measure(fd: int, limit: int, seconds: float) -> float | None:
    """Return bytes per second, None if there is nothing to read.

    :param limit: bytes read at most
    :param seconds: begin no request after this time
    """
    offsets = data_offsets(fd, limit // REQUEST)
    with direct.uncached(fd) as uncached:
        return timed(lambda offset: len(direct.read(uncached, offset,
                                                    REQUEST)),
                     offsets, seconds)


def measure_scattered(fd: int, seconds: float) -> float | None:
    """Return bytes per second of PAGE at random offsets, as measure().

    :param seconds: those of measure(); SCATTERED of them are used
    """
    offsets = data_offsets(fd, PAGES, PAGE)
    random.SystemRandom().shuffle(offsets)
    with direct.uncached(fd) as uncached:
        return timed(lambda offset: len(direct.read(uncached, offset, PAGE)),
                     offsets, SCATTERED * seconds)


def timed(read: Callable[[int], int], offsets: Iterable[int],
          seconds: float) -> float | None:
    """Call read for each offset, DEPTH at a time, and return the rate.

    :param read: returns how many bytes it read
    :raises OSError: and what else read raises
    """
    todo = iter(offsets)
    guard = threading.Lock()
    counts: list[int] = []
    failures: list[Exception] = []
    started = time.monotonic()

    def work() -> None:
        try:
            while time.monotonic() - started < seconds and not failures:
                with guard:
                    offset = next(todo, None)
                if offset is None:
                    break
                counts.append(read(offset))
        except Exception as error:
            failures.append(error)

    # An executor's threads would keep a process from ending while storage
    # hangs.
    threads = [threading.Thread(target=work, name='dedup-rate', daemon=True)
               for _ in range(DEPTH)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    elapsed = time.monotonic() - started
    return sum(counts) / elapsed if counts and elapsed else None


def data_offsets(fd: int, count: int, request: int = REQUEST) -> list[int]:
    """Return up to count offsets of whole requests that hold data.

    :param request: bytes of one
    :returns: multiples of request, in ascending order
    """
    requests = direct.size(fd) // request
    chosen: set[int] = set()
    tried: set[int] = set()
    source = random.SystemRandom()
    for _ in range(_TRIES):
        if len(chosen) >= min(count, requests) or len(tried) >= requests:
            break
        number = source.randrange(requests)
        if number in tried:
            continue
        tried.add(number)
        found = _next_data(fd, number * request) // request
        if found < requests:
            chosen.add(found)
    return [number * request for number in sorted(chosen)]


def _next_data(fd: int, offset: int) -> int:
    """Return offset, or where data begins behind it, or the end."""
    try:
        return max(offset, os.lseek(fd, offset, os.SEEK_DATA))
    except OSError as error:
        if error.errno == errno.ENXIO:
            return direct.size(fd) + REQUEST
        if error.errno == errno.EINVAL:
            # not known, as of block devices
            return offset
        raise
