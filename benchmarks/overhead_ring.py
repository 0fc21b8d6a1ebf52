# SPDX-License-Identifier: Apache-2.0
"""Reads a disk through QEMU without a guest (vring.py), recording off and
on.  QEMU's work is all that is measured, so what recording adds shows."""

from collections.abc import Iterator
import itertools
import json
import os
from pathlib import Path
import tempfile
import time

from benchmarks import vring
from benchmarks.pairs import alternate
from benchmarks.pairs import Pair
from benchmarks.pairs import processor_time
from benchmarks.pairs import Slice
from guests.synthetic import disk
from testkit import direct
from testkit import spec

MEMORY_MIB = 512
_DISK_MIB = 256
_SHM = Path('/dev/shm')
#: name -> bytes of a request, in sequence, distinct batches
_PATTERNS = {
    '128 KiB in sequence': (128 << 10, True, 16),
    '4 KiB at random': (4 << 10, False, 128),
}


def _nodes(path: Path | None, direct: bool) -> list[dict]:
    """The disk: a file, past the host's page cache or in it, or nothing
    at all behind it."""
    if path is None:
        return [
            {
                'driver': 'null-co',
                'node-name': vring.NODE,
                'size': _DISK_MIB << 20,
                'read-zeroes': False,
            }
        ]
    return [
        {
            'driver': 'file',
            'node-name': 'file',
            'filename': str(path),
            'cache': {'direct': direct, 'no-flush': False},
        },
        {
            'driver': 'raw',
            'node-name': vring.NODE,
            'file': 'file',
            'cache': {'direct': direct, 'no-flush': False},
        },
    ]


class Reader:
    """Reads for a while; see alternate()."""

    def __init__(
        self,
        guest: direct.DirectGuest,
        ring: vring.Disk,
        size: int,
        batches: list[tuple[bytes, bytes]],
        seconds: float,
    ) -> None:
        self._guest = guest
        self._ring = ring
        self._size = size
        self._batches = batches
        self._seconds = seconds

    def switch(self, on: bool) -> None:
        self._guest.track_dedup(on)

    def work(self) -> Slice:
        # Once through: the map is allocated, caches are warm.
        for batch in self._batches:
            self._ring.read(batch)
        done = 0
        begun = time.monotonic()
        before = processor_time(self._guest.pid)
        for batch in itertools.cycle(self._batches):
            self._ring.read(batch)
            done += vring.BATCH * self._size
            passed = time.monotonic() - begun
            if passed >= self._seconds:
                break
        used = processor_time(self._guest.pid) - before
        return Slice(passed, used, done, done // 4096)


def _case(
    binary: Path, directory: Path, nodes: list[dict], pattern, count, seconds
) -> tuple[list[Pair], dict]:
    size, sequential, batches = pattern
    with tempfile.TemporaryDirectory(dir=_SHM) as shared:
        memory = Path(shared) / 'ram'
        socket = Path(shared) / 'qtest.sock'
        with open(memory, 'wb') as file:
            # Reserved now: there is no good moment to find out later.
            os.posix_fallocate(file.fileno(), 0, MEMORY_MIB << 20)
        arguments = [
            part
            for node in nodes
            for part in ('-blockdev', json.dumps(node))
        ]
        guest = direct.DirectGuest(
            spec.GuestSpec(
                binary=binary,
                memory_mib=MEMORY_MIB,
                memory_path=memory,
                memory_share=True,
                extra_args=(
                    *arguments,
                    *('-device', vring.DEVICE),
                    *('-qtest', f'unix:{socket},server=on,wait=off'),
                ),
            ),
            directory,
        )
        with guest:
            guest.start(paused=True)
            qtest = vring.Qtest(socket)
            ring = vring.Disk(qtest, memory)
            reader = Reader(
                guest,
                ring,
                size,
                vring.batches(
                    size,
                    _DISK_MIB << 20,
                    MEMORY_MIB << 20,
                    sequential,
                    batches,
                ),
                seconds,
            )
            pairs = alternate(reader.switch, reader.work, count)
            reader.switch(True)
            reader.work()
            hints = guest.dedup_statistics().hints
            ring.close()
            qtest.close()
    return pairs, {
        'pages': hints.pages,
        'bytes': hints.memory_bytes,
        'ram': MEMORY_MIB << 20,
    }


def measure(
    binary: Path, directory: Path, count: int, seconds: float
) -> Iterator[tuple[str, list[Pair], dict]]:
    """Yield (name, pairs, map) of each case."""
    image = disk.make_disk(directory, mib=_DISK_MIB).path
    # All of it into the host's page cache
    with open(image, 'rb') as file:
        while file.read(1 << 20):
            pass
    for where, nodes in (
        ('cache none', _nodes(image, True)),
        ('cached file', _nodes(image, False)),
        ('null device', _nodes(None, False)),
    ):
        for name, pattern in _PATTERNS.items():
            pairs, map = _case(
                binary, directory, nodes, pattern, count, seconds
            )
            yield f'{where}, {name}', pairs, map
