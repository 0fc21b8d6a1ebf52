# SPDX-License-Identifier: Apache-2.0
"""What the guest does with its memory, and how it is told.

The options are those of the program, src/guest.h.
"""

import dataclasses

from guests.errors import GuestError

MODES = (
    'idle',
    'read',
    'pagecache-writer',
    'anon-writer',
    'mixed',
    'small-files',
    'recycle',
)

#: Share of the guest's RAM that holds something, when a share is asked for.
FILLED = 0.62
#: MiB that nothing may fill, or the guest begins to drop its page cache.
SPARE_MIB = 56


@dataclasses.dataclass(frozen=True)
class Workload:
    """MiB, and for the rates KB/s (1000 B), 0: as fast as possible.

    :param incompressible: 1 for anonymous memory that nothing makes
        smaller; otherwise it compresses as that of a real guest
    """

    mode: str = 'idle'
    cache: int | None = None
    anon: int = 0
    wss: int | None = None
    rate: int = 0
    readrate: int = 0
    seed: int = 1
    incompressible: int = 0
    disks: int = 1

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f'mode is one of {", ".join(MODES)}')
        for field in ('cache', 'anon', 'wss', 'rate', 'readrate', 'seed'):
            value = getattr(self, field)
            if value is not None and value < 0:
                raise ValueError(f'{field} cannot be negative')

    @property
    def append(self) -> str:
        """The kernel command line."""
        # An emulated processor that has to wait for a real one loses the
        # timer interrupts that the check waits for.
        words = ['console=ttyS0', 'quiet', 'panic=-1', 'no_timer_check']
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                words.append(f'workload.{field.name}={value}')
        return ' '.join(words)

    @property
    def start_command(self) -> str:
        """What starts it on a guest that booted with another mode."""
        command = f'start {self.mode} rate={self.rate}'
        command += f' readrate={self.readrate}'
        return command + (f' wss={self.wss}' if self.wss else '')


def kernel_mib(memory_mib: int) -> int:
    """What kernel, firmware and leftovers of the boot take, in MiB;
    measured with Linux 6.1 and 256 MiB to 1 GiB."""
    return 65 + memory_mib // 48


def sizes_for_share(memory_mib: int, share: int) -> tuple[int, int]:
    """(cache, anon) in MiB that make `share` % of non-zero memory file
    data.

    :raises GuestError: the memory is too small for that share
    """
    kernel = kernel_mib(memory_mib)
    # A large share needs much file data to outweigh the kernel.
    filled = max(memory_mib * FILLED, kernel * 100 / (100 - share))
    cache = int(filled * share / 100)
    anon = max(int(filled) - cache - kernel, 0)
    if cache < 4 or cache + anon + kernel > memory_mib - SPARE_MIB:
        raise GuestError(
            f'{memory_mib} MiB of memory are too few for {share} % duplicates'
        )
    return cache, anon
