# SPDX-License-Identifier: Apache-2.0
"""The writable working set of a guest, and the downtime that follows from it.

How much memory a guest writes to in a time grows more slowly than the time:
it writes to the same pages again.  So one rate does not say what a round of
a migration leaves; the sizes in windows of several lengths do (P5.2).
"""

from collections.abc import Iterable
import dataclasses

#: Seconds of the windows in which it is measured.
WINDOWS = (1, 10, 60)
#: A round that leaves more than this share of the one before gains nothing.
_GAINS = 0.99
_MAX_ROUNDS = 200


@dataclasses.dataclass(frozen=True)
class Window:
    """What a guest wrote to in a time.

    :ivar seconds: length, a little more than that of WINDOWS
    :ivar bytes: written to at least once, when it was last measured
    :ivar most: the same, in the last few measurements
    :ivar age: seconds since it was last measured
    """

    seconds: float
    bytes: float
    most: float
    age: float = 0.0


@dataclasses.dataclass(frozen=True)
class WorkingSet:
    """Sizes by window.

    :ivar points: (seconds, bytes written to at least once in that time),
        ascending
    """

    points: tuple[tuple[float, float], ...]

    @classmethod
    def of_windows(cls, windows: Iterable[Window]) -> 'WorkingSet':
        """Return that of the newest measurements."""
        return cls(tuple(sorted({one.seconds: one.bytes for one in windows
                                 if one.seconds > 0}.items())))

    def bytes(self, seconds: float) -> float:
        """Return the bytes it writes to in a time, at least once each."""
        before, size = 0.0, 0.0
        slope = 0.0
        for length, found in self.points:
            # A longer window has no less: it was measured at another time.
            found = max(found, size)
            slope = (found - size) / (length - before)
            if seconds <= length:
                break
            before, size = length, found
        return size + slope * (seconds - before)


@dataclasses.dataclass(frozen=True)
class Expected:
    """What a pre-copy migration is expected to take.

    :ivar rounds: passes over memory before the guest is stopped
    :ivar seconds: until then
    :ivar bytes: on the link, of pages
    :ivar downtime: seconds for what is left then, without the devices
    :ivar converges: False: the limit is not reached, and downtime is that of
        a guest that is stopped when rounds leave no less
    """

    rounds: int
    seconds: float
    bytes: float
    downtime: float
    converges: bool


def expect(memory: float, known: WorkingSet, rate: float,
           limit: float) -> Expected:
    """Return an Expected.

    :param memory: bytes to send in the first round
    :param rate: of the link, bytes/s
    :param limit: of the downtime, seconds
    """
    left, seconds, sent, rounds = memory, 0.0, 0.0, 0
    converges = True
    while left > limit * rate:
        written = min(known.bytes(left / rate), memory)
        seconds += left / rate
        sent += left
        rounds += 1
        if rounds > 1 and written > _GAINS * left or rounds == _MAX_ROUNDS:
            left, converges = min(left, written), False
            break
        left = written
    return Expected(rounds, seconds, sent + left, left / rate, converges)
