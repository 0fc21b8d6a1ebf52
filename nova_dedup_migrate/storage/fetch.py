# SPDX-License-Identifier: Apache-2.0
"""Fetches blocks from the sources that have them, the cheapest first.

The order is that of the expected time: latency, and the bytes that the
source is already reading for other threads, by its rate.  Both are
measured all the time.  So a fast source gets most of the work, and others
get what it would be late with.

A block that a source does not return, or returns with other bytes, goes to
the next.  A source is left for good after STRIKES calls that failed or
were late, or if it returned more wrong blocks than right ones.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import logging
import threading
import time
from typing import TypeVar

from nova_dedup_migrate import deadline
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.sources import base

LOG = logging.getLogger(__name__)

#: Calls of a source that may fail or be late.
STRIKES = 3
#: Wrong blocks that say nothing yet: positions in an index may be stale.
WRONG = 64
#: Weight of a new measurement.
_WEIGHT = 0.2

_Result = TypeVar('_Result')


class Used:
    """A source and what is known about it.

    :ivar wrong: blocks with other bytes
    :ivar left: why it is not used any more, '' if it is
    """

    def __init__(self, source: base.Source, stall: float, threads: int
                 ) -> None:
        self.source = source
        self.wrong = 0
        self.left = ''
        self._right = 0
        self._strikes = 0
        self._busy = 0
        self._rate = source.cost.rate
        self._latency = source.cost.latency
        self._stall = stall
        self._runner = deadline.Runner('source ' + source.name, threads)
        self._guard = threading.Lock()

    def expected(self, length: int) -> float:
        """Return the seconds that length bytes would take."""
        return self._latency + (self._busy + length) / self._rate

    def fetch(self, wanted: Sequence[blocks.Block]) -> dict[bytes, bytes]:
        """Return what it has of at most MAX_BLOCKS, by digest, checked."""
        there = self._call(0, self.source.have, wanted)
        if there is None:
            return {}
        hits = [block for block, has in zip(wanted, there, strict=False)
                if has]
        if not hits:
            return {}
        data = self._call(sum(block.length for block in hits),
                          self.source.read, hits)
        return self._check(hits, data or [])

    def _check(self, hits: Sequence[blocks.Block],
               data: Sequence[bytes | None]) -> dict[bytes, bytes]:
        found, wrong = {}, 0
        for block, content in zip(hits, data, strict=False):
            if content is None:
                continue
            if (len(content) == block.length
                    and blocks.digest(content) == block.digest):
                found[block.digest] = content
            else:
                wrong += 1
        with self._guard:
            self.wrong += wrong
            self._right += len(found)
            if self.wrong > WRONG and self.wrong > self._right:
                self._leave('%d of %d blocks were wrong' % (
                    self.wrong, self.wrong + self._right))
        return found

    def _call(self, length: int, function: Callable[..., list[_Result]],
              wanted: Sequence[blocks.Block]) -> list[_Result] | None:
        """Return what a call returns, None if it fails or is late."""
        with self._guard:
            self._busy += length
        begun = time.monotonic()
        try:
            result = self._runner.run(self._stall, function, wanted)
        except Exception as error:
            # Whatever a source raises, there are others.
            with self._guard:
                self._strikes += 1
                LOG.warning('Source %s failed, %d of %d times before it is '
                            'left: %s', self.source.name, self._strikes,
                            STRIKES, error)
                if self._strikes >= STRIKES:
                    self._leave('it failed %d times, at last with: %s'
                                % (self._strikes, error))
            return None
        finally:
            with self._guard:
                self._busy -= length
        self._measure(length, time.monotonic() - begun)
        return result

    def _measure(self, length: int, seconds: float) -> None:
        with self._guard:
            if length:
                rate = length / max(1e-6, seconds)
                self._rate += _WEIGHT * (rate - self._rate)
            else:
                self._latency += _WEIGHT * (seconds - self._latency)

    def _leave(self, reason: str) -> None:
        if not self.left:
            LOG.warning('Source %s is not used any more: %s',
                        self.source.name, reason)
        self.left = reason


class Fetcher:
    """Fetches from all of them.

    :param sources: each is called by several threads
    :param stall: seconds after which a call is given up
    :param threads: that call fetch() at a time
    """

    def __init__(self, sources: Iterable[base.Source], stall: float,
                 threads: int) -> None:
        self.used = [Used(source, stall, threads) for source in sources]
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Call no source any more; fetch() returns what it has."""
        self._stopped.set()

    def fetch(self, wanted: Sequence[blocks.Block]
              ) -> dict[bytes, tuple[bytes, Used]]:
        """Return the content of the blocks that a source has, by digest.

        :param wanted: at most base.MAX_BLOCKS
        """
        found: dict[bytes, tuple[bytes, Used]] = {}
        left = list({block.digest: block for block in wanted}.values())
        length = sum(block.length for block in left)
        for used in sorted(self.used,
                           key=lambda each: each.expected(length)):
            if not left or self._stopped.is_set():
                break
            if used.left:
                continue
            for digest, data in used.fetch(left).items():
                found[digest] = data, used
            left = [block for block in left if block.digest not in found]
        return found

    def close(self) -> None:
        """Close the sources."""
        for used in self.used:
            try:
                used.source.close()
            except Exception as error:
                LOG.warning('Source %s was not closed: %s',
                            used.source.name, error)
