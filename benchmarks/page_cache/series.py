# SPDX-License-Identifier: Apache-2.0
"""What a load did second by second, around the resumption.

A point is {'t': seconds since the guest resumed, at its end, 'mbps': MB/s
that were read, and of loads with requests 'requests' that succeeded, 'errors'
that did not, 'p50' and 'p99': their latency in s; None of the others, and
where no request succeeded; 'due': of the load in the guest, requests that
should have begun then}.
"""

import bisect
import math

from benchmarks.page_cache.cells import AFTER_S
from benchmarks.page_cache.cells import BEFORE_S
from benchmarks.page_cache.cells import FIRST_S
from guests.debian import web
from guests.synthetic.report import GuestReport

#: Seconds by which a guest may be seen to run too late.
_LATE_S = 1.0

Point = dict[str, float | None]


def of_reports(reports: list[tuple[float, GuestReport]],
               resumed: float) -> list[Point]:
    """Points between neighbouring reports of the small guest.

    :param reports: (host's time, report), in order
    :param resumed: host's time
    """
    points: list[Point] = []
    for (_, before), (when, report) in zip(reports, reports[1:],
                                           strict=False):
        seconds = (report.mono_ms - before.mono_ms) / 1000
        if seconds > 0:
            points.append(_point(
                when - resumed,
                (report.verified - before.verified) / 1e6 / seconds))
    return points


def of_windows(windows, resumed: float) -> list[Point]:
    """Points of the load in the Debian guest.

    :param windows: guests.debian.client.Window
    :param resumed: guest's time
    """
    return [_point(one.end - resumed, one.throughput, one.p50 or None,
                   one.p99 or None, one.requests, one.errors, one.due)
            for one in windows]


def of_requests(requests: list[web.Request], resumed: float, began: float,
                ended: float) -> list[Point]:
    """Points of the load from outside, whole seconds from the resumption.

    A request counts when it ends.

    :param requests: in the order of their ends
    :param resumed, began, ended: host's times: of the guest, and of the load
    """
    points = []
    ends = [one.end for one in requests]
    for t in range(math.ceil(began - resumed) + 1,
                   math.floor(ended - resumed) + 1):
        some = requests[bisect.bisect_right(ends, resumed + t - 1):
                        bisect.bisect_right(ends, resumed + t)]
        good = [one for one in some if one.outcome == web.GOOD]
        latencies = sorted(one.latency for one in good)
        points.append(_point(
            t, sum(one.bytes for one in good) / 1e6,
            _percentile(latencies, 50), _percentile(latencies, 99),
            len(good), len(some) - len(good)))
    return points


def _percentile(values: list[float], percent: int) -> float | None:
    """Of sorted values, the least that so many are not above."""
    if not values:
        return None
    return round(values[math.ceil(len(values) * percent / 100) - 1], 6)


def outage(requests: list[web.Request], resumed: float, began: float,
           ended: float) -> float | None:
    """The longest time without an answer around the resumption: of those
    that reach into the first seconds after it.

    The arguments are those of of_requests.

    :returns: s; None if the load did not run then
    """
    if not began <= resumed <= ended:
        return None
    times = [began, *(one.end for one in requests
                      if one.outcome == web.GOOD), ended]
    return round(max(
        after - before
        for before, after in zip(times, times[1:], strict=False)
        if after >= resumed - _LATE_S and before <= resumed + FIRST_S), 3)


def _point(t: float, mbps: float, p50: float | None = None,
           p99: float | None = None, requests: int | None = None,
           errors: int | None = None, due: int | None = None) -> Point:
    return {'t': round(t, 2), 'mbps': round(mbps, 3), 'p50': p50,
            'p99': p99, 'requests': requests, 'errors': errors, 'due': due}


def mean(points: list[Point], begin: float, end: float,
         field: str = 'mbps') -> float | None:
    """Mean of a field of the points in (begin, end] of which it is known,
    None if there are none."""
    times = [one['t'] for one in points]
    some = [one[field] for one in points[bisect.bisect_right(times, begin):
                                         bisect.bisect_right(times, end)]
            if one[field] is not None]
    return sum(some) / len(some) if some else None


def kept(points: list[Point], asked: float) -> list[Point]:
    """Those that are recorded.

    :param asked: when the migration was asked for, before the resumption:
        a negative number
    """
    return [one for one in points if asked - BEFORE_S <= one['t'] <= AFTER_S]


def recovery(points: list[Point], asked: float,
             per_due: bool = False) -> float | None:
    """Throughput of the first seconds after the resumption as a multiple of
    that before the migration was asked for.

    :param per_due: of loads whose requests are due at random times: count
        requests, as a part of those that were due; chance alone varies the
        number of 25 by a fifth.  What was due is known of what has ended,
        so where nothing ended that was due later, there was a stall: 0
    """
    if per_due and mean(points, FIRST_S, AFTER_S, 'due') == 0:
        return 0.0

    def throughput(begin: float, end: float) -> float | None:
        if not per_due:
            return mean(points, begin, end)
        done = mean(points, begin, end, 'requests')
        due = mean(points, begin, end, 'due')
        return done / due if due and done is not None else None

    before = throughput(asked - BEFORE_S, asked)
    first = throughput(0.0, FIRST_S)
    return first / before if before and first is not None else None
