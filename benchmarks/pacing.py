# SPDX-License-Identifier: Apache-2.0
"""The adaptive rate of Clark et al. (NSDI'05, section 4.3; papers.md P5.3)
and of Xen, which the first paper's start/maximum rates are about.

    round 1       start rate
    round n + 1   rate the guest wrote at in round n, plus 50 Mbit/s
    last round    maximum; it comes when less than 256 KiB are left, when
                  the next rate would exceed the maximum, or as round 30,
                  which is Xen's rule

QEMU has one rate, so it is set from outside when a round has begun.  What
it measures as the guest's rate covers at least a second, and pages that
were written to twice in it count once.  In the last round it keeps to no
rate: the link has to (Wire in relay.py).
"""

import dataclasses

#: 50 Mbit/s in bytes per second
STEP = 6_250_000
#: bytes that are left to the last round
_LAST = 256 << 10
_MAX_ROUNDS = 30


@dataclasses.dataclass(frozen=True)
class Step:
    """Bytes per second from now on; last: stop the guest and finish."""

    rate: int
    last: bool = False


class AdaptiveRate:
    """:param start, maximum: bytes per second"""

    def __init__(self, start: int, maximum: int) -> None:
        self.start = start
        self.maximum = maximum
        self._round = 1

    def last_round(self) -> dict[str, object]:
        """MigrationOptions that make QEMU begin it with _LAST left.

        It does so when the rest would take less than downtime_limit_ms at
        the bandwidth it is promised.
        """
        return {
            'downtime_limit_ms': -(-_LAST * 1000 // self.maximum),
            'parameters': {'avail-switchover-bandwidth': self.maximum},
        }

    def update(self, rounds: int, dirty_rate: int) -> Step | None:
        """What is to change, if anything.

        :param rounds: passes over memory that have begun
        :param dirty_rate: bytes per second the guest wrote to
        """
        if rounds <= self._round:
            return None
        self._round = rounds
        wanted = max(dirty_rate + STEP, self.start)
        if wanted > self.maximum or rounds >= _MAX_ROUNDS:
            return Step(self.maximum, last=True)
        return Step(wanted)
