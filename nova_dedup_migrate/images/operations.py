# SPDX-License-Identifier: Apache-2.0
"""What is done to the images of running guests, by path.

Images belong to the user QEMU runs as, which need not be ours.  Each
function here opens its image itself and takes and returns plain values,
so that images.access can call it in this process or in the privileged
one.

roots is as for paths.open_file.
"""

from __future__ import annotations

from nova_dedup_migrate.images import locks
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.images import rates
from nova_dedup_migrate.images import samples

Roots = paths.Roots


def hold_lock(path: str, roots: Roots, offset: int) -> int:
    """See locks.hold."""
    with paths.open_file(path, roots) as fd:
        return locks.hold(fd, offset)


def release_lock(number: int) -> None:
    """See locks.release."""
    locks.release(number)


def is_locked(path: str, roots: Roots, offset: int) -> bool:
    """See locks.is_held."""
    with paths.open_file(path, roots) as fd:
        return locks.is_held(fd, offset)


def sample(path: str, roots: Roots, key: str, block: bool = False
           ) -> str | None:
    """See samples.digest.

    :param block: path is that of a block device
    """
    opener = paths.open_block if block else paths.open_file
    with opener(path, roots) as fd:
        return samples.digest(fd, key)


def read_rates(path: str, roots: Roots, limit: int, seconds: float,
               block: bool = False) -> tuple[float | None, float | None]:
    """Return both rates; see rates.measure and measure_scattered."""
    opener = paths.open_block if block else paths.open_file
    with opener(path, roots) as fd:
        return (rates.measure(fd, limit, seconds),
                rates.measure_scattered(fd, seconds))
