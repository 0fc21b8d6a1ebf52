# SPDX-License-Identifier: Apache-2.0
"""A swap while nova-compute is at work on it: its record, its progress.

One thread writes: Nova's, which fills and then waits for the mirror.  It
sees a request to end the swap each time that it reports progress.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import logging
import time
from typing import Any

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import operations

LOG = logging.getLogger(__name__)

#: Seconds between two times that progress is written, or logged.
WRITE, TELL = 3.0, 10.0


class RunningSwap:
    """One swap.

    :param kept: has its record
    :param swap: as it begins; it is written
    :param clock: returns seconds
    :raises OSError: it cannot be written
    """

    def __init__(self, kept: operations.SwapOperations,
                 swap: operations.Swap,
                 clock: Callable[[], float] = time.time) -> None:
        self._kept = kept
        self._clock = clock
        self._written = self._told = clock()
        self.swap = dataclasses.replace(swap, began=clock())
        kept.withdraw_abort(swap)
        kept.write(self.swap)

    def enter(self, phase: str, **changes: Any) -> None:
        """Write that a phase begins, before it does.

        :param changes: other fields of the Swap
        :raises OSError: it is not to begin
        """
        self.swap = dataclasses.replace(self.swap, phase=phase, done=0,
                                        total=0, **changes)
        self._kept.write(self.swap)
        LOG.info('The move of volume %s of instance %s: %s',
                 self.swap.old_volume, self.swap.instance, phase)

    def check(self) -> None:
        """:raises Aborted: an administrator has requested it"""
        if self._kept.is_abort_requested(self.swap):
            raise errors.Aborted(volume=self.swap.old_volume)

    def see_fill(self, progress: rebuild.Progress) -> None:
        """Take note of how far the fill is.

        :raises Aborted: it is to end
        """
        self.check()
        self._advance(progress.done * blocks.BLOCK,
                      progress.total * blocks.BLOCK, progress.sources)

    def see_mirror(self, done: int, total: int) -> None:
        """Take note of how far the mirror is, in bytes."""
        self._advance(done, total, {**self.swap.sources, 'volume': done})

    def _advance(self, done: int, total: int, sources: dict[str, int]
                 ) -> None:
        swap = self.swap = dataclasses.replace(
            self.swap, done=done, total=total, sources=dict(sources))
        now = self._clock()
        if now - self._written >= WRITE:
            self._written = now
            self._write()
        if now - self._told >= TELL:
            self._told = now
            LOG.info('The move of volume %s of instance %s: %s, %d of %d '
                     'bytes after %d s; %d bytes from the backup, %d from '
                     'the old volume so far', swap.old_volume, swap.instance,
                     swap.phase, done, total, now - swap.began,
                     sources.get('backup', 0), sources.get('volume', 0))

    def over(self, outcome: str, **changes: Any) -> None:
        """Write what became of the driver's part; never raises.

        :param changes: other fields of the Swap
        """
        self.swap = dataclasses.replace(
            self.swap, outcome=outcome,
            seconds=self._clock() - self.swap.began, **changes)
        self._write()
        self._kept.withdraw_abort(self.swap)

    def _write(self) -> None:
        try:
            self._kept.write(self.swap)
        except OSError as error:
            LOG.warning('The record of the move of volume %s of instance %s '
                        'is not written: %s', self.swap.old_volume,
                        self.swap.instance, error)
