# SPDX-License-Identifier: Apache-2.0
"""The adaptive rate of Clark et al. (NSDI'05, section 4.3; papers.md P5.3)
and of Xen, which the first paper's start/maximum rates are about.

    round 1       minimum
    round n + 1   rate the guest wrote at in round n, plus 50 Mbit/s
    last round    maximum; it comes when less than LAST bytes are left, when
                  the next rate would exceed the maximum, or as round 30,
                  which is Xen's rule

QEMU has one rate, so it is set from outside when a round has begun.  What
it measures as the guest's rate covers at least a second, and pages that
were written to twice in it count once.  While the guest is stopped it keeps
to no rate: the link has to.
"""

import dataclasses

#: 50 Mbit/s in bytes per second
STEP = 6_250_000
#: bytes that are left to the last round
LAST = 256 << 10
_MAX_ROUNDS = 30


@dataclasses.dataclass(frozen=True)
class Step:
    """A new rate.

    :ivar rate: bytes per second from now on
    :ivar last: no further round would gain anything
    """

    rate: int
    last: bool = False


class AdaptiveRate:
    """The rate of each round of one migration.

    :param minimum: bytes per second
    :param maximum: bytes per second
    """

    def __init__(self, minimum: int, maximum: int) -> None:
        self.minimum = min(minimum, maximum)
        self.maximum = maximum
        self._round = 1

    def update(self, rounds: int, dirty_rate: int) -> Step | None:
        """Return what is to change, None if nothing.

        :param rounds: passes over memory that have begun
        :param dirty_rate: bytes per second the guest wrote to
        """
        if rounds <= self._round:
            return None
        self._round = rounds
        wanted = max(dirty_rate + STEP, self.minimum)
        if wanted > self.maximum or rounds >= _MAX_ROUNDS:
            return Step(self.maximum, last=True)
        return Step(wanted)
