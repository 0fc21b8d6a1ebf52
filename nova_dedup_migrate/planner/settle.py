# SPDX-License-Identifier: Apache-2.0
"""When rounds no longer leave less, the downtime that ends them (P5.2).

A guest writes to the same pages again and again: rings, buffers, stacks.
What of them is dirty after a round, however short, is its writable working
set, and no further round leaves less.  Where that takes a little longer to
send than the downtime limit, QEMU goes on round after round.

Nova raises the limit in steps towards live_migration_downtime, by default
one in some minutes, and all that time the link carries the same pages.
Here the limit is raised as soon as rounds show that, to what it takes and
never above live_migration_downtime.  Nova's next step may lower it again: as
long as rounds show the same, it is raised once more.
"""

import dataclasses
import math
import statistics

#: Rounds, and seconds, that have to show the same.
_ROUNDS = 8
_SPAN_S = 2.0
#: The newer half of them leaves less than that part of the older one, or
#: rounds still get somewhere.
_SAME = 0.8
#: Of what it takes on average.
MARGIN = 1.25


@dataclasses.dataclass(frozen=True)
class _Round:
    """:ivar time: seconds since the start
    :ivar downtime: milliseconds that ending now would take
    """

    time: float
    downtime: float


class Settling:
    """Looks at the rounds of one migration.

    :param most: milliseconds, live_migration_downtime
    :param steps: ((seconds since the start, milliseconds), ...): Nova's
        own way to it; empty: most from the start
    """

    def __init__(self, most, steps=()):
        self._most = most
        self._steps = sorted(steps)
        self._number = None
        self._rounds = []

    def look(self, number, downtime, time):
        """Return the downtime limit in ms to be set, None: leave it.

        :param number: of rounds so far
        :param downtime: milliseconds that ending now would take, None if
            QEMU does not know yet
        :param time: seconds since the start
        """
        if number == self._number or not downtime:
            return None
        self._number = number
        self._rounds.append(_Round(time, downtime))
        self._forget(time)
        wanted = self._wanted(time)
        if wanted is None or wanted <= self._limit(time):
            return None
        self._rounds.clear()
        return wanted

    def _forget(self, time):
        """Keep enough, and no more."""
        while (len(self._rounds) > _ROUNDS
               and time - self._rounds[1].time >= _SPAN_S):
            del self._rounds[0]

    def _wanted(self, time):
        rounds = self._rounds
        if len(rounds) < _ROUNDS or time - rounds[0].time < _SPAN_S:
            return None
        half = len(rounds) // 2
        before, now = (statistics.median(one.downtime for one in some)
                       for some in (rounds[:half], rounds[half:]))
        if now < _SAME * before or now > self._most:
            return None
        return min(math.ceil(MARGIN * now), self._most)

    def _limit(self, time):
        """The limit that Nova has set, in ms."""
        if not self._steps:
            return self._most
        return next((limit for since, limit in reversed(self._steps)
                     if since <= time), 0.0)
