# SPDX-License-Identifier: Apache-2.0
"""What is done to the images of running guests, by path.

Images belong to the user QEMU runs as, which need not be ours.  Each
function here opens its image itself and takes and returns plain values,
so that images.access can call it in this process or in the privileged
one.

roots is as for paths.open_file.
"""

from nova_dedup_migrate.images import locks
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.images import rates
from nova_dedup_migrate.images import samples


def hold_lock(path, roots, offset):
    """See locks.hold."""
    with paths.open_file(path, roots) as fd:
        return locks.hold(fd, offset)


def release_lock(number):
    """See locks.release."""
    locks.release(number)


def is_locked(path, roots, offset):
    """See locks.is_held."""
    with paths.open_file(path, roots) as fd:
        return locks.is_held(fd, offset)


def sample(path, roots, key, block=False):
    """See samples.digest.

    :param block: path is that of a block device
    """
    opener = paths.open_block if block else paths.open_file
    with opener(path, roots) as fd:
        return samples.digest(fd, key)


def read_rate(path, roots, limit, seconds, block=False):
    """See rates.measure."""
    opener = paths.open_block if block else paths.open_file
    with opener(path, roots) as fd:
        return rates.measure(fd, limit, seconds)
