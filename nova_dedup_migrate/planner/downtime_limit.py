# SPDX-License-Identifier: Apache-2.0
"""When rounds no longer leave less: the downtime limit that ends them.

A guest writes to the same pages again and again: rings, buffers, stacks.
The part of them that is dirty after a round, however short, is its
writable working set, and no further round leaves less.  If that takes a
little longer to send than the downtime limit, QEMU goes on round after
round.

Nova raises the limit in steps towards live_migration_downtime, by default
one in some minutes, and all that time the link carries the same pages.
This module raises it as soon as rounds show that::

    limit, ms                        live_migration_downtime
    ^                                ______________________
    |               _______________|      Nova's own steps
    |       . . . .|. . .                 may be exceeded by
    |  _ _ _|______|                      max_extra_downtime
    | ______|
    +--------------------------------------------> time

What a migration adds to the limit in its downtime (devices, libvirt's
steps, the disks' last writes) is the same with and without it.  So a
limit of no more than Nova's own at that time plus max_extra_downtime
keeps the downtime within Nova's plus max_extra_downtime.  With the
database of doc/source/benchmarks at 50 Mbit/s: ordinary migrations end
when Nova's limit is 95 ms and have 386 ms of downtime, of which 291 ms
are not the limit's.  Rounds leave 300 to 400 ms.  A limit of 1.25 times
as much, 375 to 500 ms, leads to 666 to 791 ms; measured were 663 to 864.
With this rule it is 100 to 145 ms, and the downtime 436 ms at most.

Nova's next step may lower a limit that was set here: as long as rounds
show the same, it is raised once more.
"""

import dataclasses
import math
import statistics

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import plan as planner_plan

#: Rounds, and seconds, that have to show the same.
_ROUNDS = 8
_SPAN_S = 2.0
#: If the newer half of them leaves less than that part of the older half,
#: rounds still lead further.
_SAME = 0.8
#: Of the downtime that ending now takes on average.
MARGIN = 1.25


@dataclasses.dataclass(frozen=True)
class _Round:
    """:ivar time: seconds since the start
    :ivar downtime: milliseconds that ending now would take
    """

    time: float
    downtime: float


def of_plan(options: facts.Options, plan: planner_plan.Plan | None = None
            ) -> 'DowntimeLimit | None':
    """Return the DowntimeLimit of a migration; None: leave Nova's limits.

    :param options: of its Facts
    :param plan: None: there is none, it is an ordinary migration
    """
    if not options.adapt_downtime_limit or not options.downtime_steps:
        return None
    if plan is None:
        return DowntimeLimit(options)
    if plan.max_downtime_limit_ms is None:
        return None
    return DowntimeLimit(options, plan.max_downtime_limit_ms)


class DowntimeLimit:
    """Watches the rounds of one migration.

    :param options: facts.Options with downtime_ms, downtime_steps and
        max_extra_downtime_ms
    :param most: milliseconds, never set a higher limit
    """

    def __init__(self, options: facts.Options,
                 most: float = math.inf) -> None:
        self._options = options
        self._most = most
        self._steps = sorted(options.downtime_steps)
        self._number: int | None = None
        self._rounds: list[_Round] = []

    def look(self, number: int, downtime: float | None,
             time: float) -> int | None:
        """Return the downtime limit in ms to be set, None: leave it.

        :param number: of rounds so far
        :param downtime: milliseconds that ending now would take, None if
            QEMU has not calculated it yet
        :param time: seconds since the start
        """
        if number == self._number or not downtime:
            return None
        self._number = number
        self._rounds.append(_Round(time, downtime))
        self._forget(time)
        wanted = self._wanted(time)
        if wanted is None:
            return None
        nova = self._nova(time)
        limit = math.floor(min(
            wanted, self._most, self._options.downtime_ms,
            nova + self._options.max_extra_downtime_ms))
        if limit <= nova:
            return None
        self._rounds.clear()
        return limit

    def _forget(self, time: float) -> None:
        """Keep enough rounds, and no more."""
        while (len(self._rounds) > _ROUNDS
               and time - self._rounds[1].time >= _SPAN_S):
            del self._rounds[0]

    def _wanted(self, time: float) -> int | None:
        """Return the limit in ms that would end it now."""
        rounds = self._rounds
        if len(rounds) < _ROUNDS or time - rounds[0].time < _SPAN_S:
            return None
        half = len(rounds) // 2
        before, now = (statistics.median(one.downtime for one in some)
                       for some in (rounds[:half], rounds[half:]))
        if now < _SAME * before:
            return None
        return math.ceil(MARGIN * now)

    def _nova(self, time: float) -> float:
        """Return the limit that Nova has set, in ms."""
        if not self._steps:
            return self._options.downtime_ms
        return next((limit for since, limit in reversed(self._steps)
                     if since <= time), 0.0)
