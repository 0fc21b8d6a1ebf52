# SPDX-License-Identifier: Apache-2.0
"""One measured run as a record of plain values, and what was around it."""

from concurrent import futures
import dataclasses
import mmap
import os
from pathlib import Path
import resource
import time

from benchmarks import run

_READ = 1 << 20
_READERS = 4
_USER_HZ = os.sysconf('SC_CLK_TCK')


def storage_rate(path: Path) -> float:
    """Bytes per second at which a file can be read past the page cache."""
    size = path.stat().st_size // _READ * _READ
    # Anonymous memory is aligned, which O_DIRECT wants.
    buffers = [mmap.mmap(-1, _READ) for _ in range(_READERS)]
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def read(number: int) -> int:
        return sum(
            os.preadv(file, [buffers[number]], at)
            for at in range(number * _READ, size, _READERS * _READ)
        )

    try:
        begun = time.monotonic()
        with futures.ThreadPoolExecutor(_READERS) as pool:
            done = sum(pool.map(read, range(_READERS)))
        return done / (time.monotonic() - begun)
    finally:
        os.close(file)
        for buffer in buffers:
            buffer.close()


def busy_seconds() -> float:
    """Seconds that all processors together were busy, since the boot."""
    with open('/proc/stat') as file:
        ticks = [int(word) for word in file.readline().split()[1:]]
    idle, iowait = ticks[3], ticks[4]
    # guest time is part of user time already
    return (sum(ticks[:8]) - idle - iowait) / _USER_HZ


class Neighbours:
    """How many processors others kept busy while something ran.

    What we waited for counts as ours.
    """

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._busy = busy_seconds()
        self._ours = self._own()

    @staticmethod
    def _own() -> float:
        usages = map(
            resource.getrusage,
            (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN),
        )
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    def processors(self) -> float:
        """Mean since this object was made."""
        others = busy_seconds() - self._busy - (self._own() - self._ours)
        return round(
            max(others, 0.0) / (time.monotonic() - self._begun), 2
        )


def wait_until_quiet(processors: float, timeout: float) -> float:
    """Wait until others use at most so many processors.

    :param timeout: seconds after which it is enough
    :returns: what they used in the last two seconds
    """
    give_up = time.monotonic() + timeout
    while True:
        around = Neighbours()
        time.sleep(2.0)
        used = around.processors()
        if used <= processors or time.monotonic() > give_up:
            return used


def compression_cost(statistics: dict | None) -> float | None:
    """Seconds of a processor for a GB of pages that were compressed.

    :param statistics: of query-x-dedup, of either side
    :returns: None: nothing was compressed
    """
    pages = (statistics or {}).get('compressed_pages')
    if not pages:
        return None
    return statistics['compression_ns'] / (pages * 4.096e-6) / 1e9


def record(result: run.Result) -> dict:
    """What is kept of a run; bytes, pages, seconds, milliseconds."""
    kept = {
        name: getattr(result, name)
        for name in (
            'total_time_s',
            'downtime_ms',
            'link_bytes',
            'back_bytes',
            'rounds',
            'digest_failures',
            'ram_identical',
            'guest_verified',
            'guest_error',
            'converged',
            'reason',
            'source_statistics',
            'incoming_statistics',
        )
    }
    kept['pages'] = dataclasses.asdict(result.pages)
    for side in 'source', 'incoming':
        kept[f'{side}_cost_s'] = compression_cost(kept[f'{side}_statistics'])
    if result.content is not None:
        kept['unique_bytes'] = result.content.unique_bytes
        kept['duplicate_bytes'] = result.content.duplicate * 4096
    return kept


def wrong(kept: dict) -> str | None:
    """Why a record is not one of a migration that went right."""
    if kept['ram_identical'] is False:
        return 'memory differs between source and destination'
    if not kept['guest_verified']:
        return f'the guest found an error: {kept["guest_error"]}'
    return None
