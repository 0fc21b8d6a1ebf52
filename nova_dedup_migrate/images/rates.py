# SPDX-License-Identifier: Apache-2.0
"""How fast a disk is read.

Requests are as the destination of a migration makes them: up to 1 MiB,
several at a time, spread over the disk, past the page cache.  Holes are
left out, because reading them says nothing about storage.
"""

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
#: Offsets that are looked at for data.
_TRIES = 1024


def measure(fd, limit, seconds):
    """Return bytes per second, None if there is nothing to read.

    :param limit: bytes read at most
    :param seconds: begin no request after this time
    """
    offsets = data_offsets(fd, limit // REQUEST)
    with direct.uncached(fd) as uncached:
        return timed(lambda offset: len(direct.read(uncached, offset,
                                                    REQUEST)),
                     offsets, seconds)


def timed(read, offsets, seconds):
    """Call read for each offset, DEPTH at a time, and return the rate.

    :param read: returns how many bytes it read
    :raises OSError: and what else read raises
    """
    todo = iter(offsets)
    guard = threading.Lock()
    counts, failures = [], []
    started = time.monotonic()

    def work():
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


def data_offsets(fd, count):
    """Return up to count offsets of whole requests that hold data."""
    requests = direct.size(fd) // REQUEST
    chosen = set()
    tried = set()
    source = random.SystemRandom()
    for _ in range(_TRIES):
        if len(chosen) >= min(count, requests) or len(tried) >= requests:
            break
        number = source.randrange(requests)
        if number in tried:
            continue
        tried.add(number)
        found = _next_data(fd, number * REQUEST) // REQUEST
        if found < requests:
            chosen.add(found)
    return [number * REQUEST for number in sorted(chosen)]


def _next_data(fd, offset):
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
