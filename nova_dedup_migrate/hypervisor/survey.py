# SPDX-License-Identifier: Apache-2.0
"""Figures of a guest that a migration is planned with.

::

    dirty rate      |----- measured by QEMU -----|
    memory in use   |--|  sampled by QEMU
    disk writes     +                            +   two readings
    hints                                        |--- sampled ---|

The first three at the same time: none needs the processor for long.  If a
figure cannot be had the others are taken all the same.
"""

import concurrent.futures
import dataclasses
import functools
import time
import typing

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import sampling
from nova_dedup_migrate.hypervisor import statistics

#: Hints that are compared with the disks: of so many, the share that holds
#: is right within 2 %.
_HINTS = 512
_MIB = 1 << 20
#: QEMU rounds a dirty rate down to whole MiB.  That of a guest that
#: writes is half a MiB more on average; a guest for which QEMU returns 0
#: has hardly anything to do.
_ROUNDED = 0.5 * _MIB
_IDLE = 0.2 * _MIB


@dataclasses.dataclass(frozen=True)
class Survey:
    """The figures; None: it could not be had.

    :ivar dirty_rate: bytes/s
    :ivar disk_write_rate: bytes/s the guest writes to all its disks
    :ivar in_use: sampling.InUse; None as well if the guest's QEMU cannot
        sample
    :ivar hints: statistics.HintStatistics
    :ivar disk_hints: tuple of statistics.DiskHints, of disks with hints;
        none if the guest's QEMU is of an older release
    :ivar warnings: (what failed, the exception) of each
    """

    dirty_rate: float | None = None
    disk_write_rate: float | None = None
    in_use: sampling.InUse | None = None
    hints: statistics.HintStatistics | None = None
    disk_hints: tuple[statistics.DiskHints, ...] | None = None
    warnings: tuple[tuple[str, errors.HypervisorError], ...] = ()


def survey(guest, seconds=1, running=True):
    """Measure a guest for some seconds, return a Survey.

    :param guest: hypervisor.base.Guest
    :param seconds: whole seconds
    :param running: whether its CPUs run; otherwise it writes nothing,
        and only memory and hints are sampled
    :raises GuestNotRunning, QmpDisconnected: it has gone
    """
    warnings = []

    def attempt(what, function):
        try:
            return function()
        except (errors.GuestNotRunning, errors.QmpDisconnected):
            raise
        except errors.HypervisorError as error:
            warnings.append((what, error))
            return None

    in_use = functools.partial(
        attempt, 'sampling memory', functools.partial(_in_use, guest))
    found: dict[str, typing.Any] = {'dirty_rate': 0.0,
                                    'disk_write_rate': 0.0}
    if running:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            # Read before and after the other two.
            rate = attempt('measuring disk writes',
                           functools.partial(_WriteRate, guest))
            dirty = pool.submit(
                attempt, 'measuring the dirty rate',
                functools.partial(guest.dirty_rate, seconds))
            found['in_use'] = in_use()
            found['dirty_rate'] = _unrounded(dirty.result())
            found['disk_write_rate'] = rate and attempt(
                'measuring disk writes', rate.now)
    else:
        found['in_use'] = in_use()
    try:
        found['hints'] = guest.dedup_statistics().hints
    except errors.DedupNotSupported:
        # that is what None means
        pass
    else:
        found['disk_hints'] = attempt('sampling hints', functools.partial(
            _disk_hints, guest, found['hints']))
    return Survey(warnings=tuple(warnings), **found)


def _in_use(guest):
    try:
        return guest.memory_in_use()
    except errors.DedupNotSupported:
        # a stock QEMU, or an instance that was started by an older release
        return None


def _disk_hints(guest, hints):
    if not hints.pages:
        return ()
    try:
        return guest.sample_hints(_HINTS)
    except errors.DedupNotSupported:
        # an instance that was started by an older release
        return None


def _unrounded(rate):
    if rate is None:
        return None
    return rate + _ROUNDED if rate else _IDLE


class _WriteRate:
    """Bytes written to disks, since this was made."""

    def __init__(self, guest):
        self._guest = guest
        self._begun = time.monotonic()
        self._before = guest.disk_bytes_written()

    def now(self):
        written = self._guest.disk_bytes_written() - self._before
        passed = time.monotonic() - self._begun
        # A counter that went back is that of another QEMU.
        return written / passed if written >= 0 and passed > 0 else None
