# SPDX-License-Identifier: Apache-2.0
"""The test guest reads its disk past its page cache, and boots, recording
off and on."""

from collections.abc import Iterator
import itertools
from pathlib import Path
import time

from benchmarks.pairs import alternate
from benchmarks.pairs import Pair
from benchmarks.pairs import processor_time
from benchmarks.pairs import Slice
from guests.synthetic import channel
from guests.synthetic import disk
from guests.synthetic import image
from guests.synthetic import workload
from testkit import direct
from testkit import spec

MEMORY_MIB = 512
CACHE_MIB = 256
_CHANNEL = 'workload'
_PATTERNS = {'128 KiB in sequence': 'seq', '4 KiB at random': 'random'}


def _guest(binary: Path, directory: Path) -> direct.DirectGuest:
    """A guest whose disk is a file in the host's page cache."""
    linux = image.guest_image()
    data = disk.make_disk(directory, mib=CACHE_MIB)
    return direct.DirectGuest(
        spec.GuestSpec(
            binary=binary,
            memory_mib=MEMORY_MIB,
            kernel=linux.kernel,
            initrd=linux.initrd,
            append=workload.Workload(cache=CACHE_MIB).append,
            disks=(spec.Disk(path=data.path, cache='writeback'),),
            channels=(spec.Channel(_CHANNEL, 'uart', 'socket'),),
            extra_args=('-no-reboot',),
        ),
        directory,
    )


def measure(
    binary: Path, directory: Path, count: int, seconds: float
) -> Iterator[tuple[str, list[Pair], dict]]:
    """Yield (name, pairs, map) of each pattern of reads."""
    guest = _guest(binary, directory)
    with guest:
        guest.start(paused=True)
        guest.track_dedup()
        with channel.GuestChannel(guest.channel(_CHANNEL)) as talk:
            guest.cont()
            talk.wait_ready()
            # The page cache is full of the disk now.
            hints = guest.dedup_statistics().hints
            found = {
                'pages': hints.pages,
                'bytes': hints.memory_bytes,
                'ram': MEMORY_MIB << 20,
            }
            for name, kind in _PATTERNS.items():
                line = f'io {kind} {int(seconds * 1000)}'

                def work(line: str = line) -> Slice:
                    before = processor_time(guest.pid)
                    reply = talk.command(line)
                    used = processor_time(guest.pid) - before
                    return Slice(
                        reply['us'] / 1e6,
                        used,
                        reply['bytes'],
                        reply['bytes'] // 4096,
                    )

                yield name, alternate(guest.track_dedup, work, count), found


def boots(binary: Path, directory: Path, count: int) -> list[Pair]:
    """From the first instruction until CACHE_MIB of files have been read."""
    numbers = itertools.count()
    recording = False

    def switch(on: bool) -> None:
        nonlocal recording
        recording = on

    def work() -> Slice:
        guest = _guest(binary, directory / str(next(numbers)))
        with guest:
            guest.start(paused=True)
            guest.track_dedup(recording)
            with channel.GuestChannel(guest.channel(_CHANNEL)) as talk:
                before = processor_time(guest.pid)
                begun = time.monotonic()
                guest.cont()
                talk.wait_ready()
                return Slice(
                    time.monotonic() - begun,
                    processor_time(guest.pid) - before,
                    1,
                )

    return alternate(switch, work, count)
