# SPDX-License-Identifier: Apache-2.0
"""What a load did second by second, around the resumption.

A point is {'t': seconds since the guest resumed, at its end, 'mbps': MB/s
that were read, and of loads with requests 'requests' that succeeded, 'errors'
that did not, 'p50' and 'p99': their latency in s; None of the others}.
"""

import bisect

from benchmarks.guest.report import GuestReport
from benchmarks.page_cache.cells import AFTER_S
from benchmarks.page_cache.cells import BEFORE_S
from benchmarks.page_cache.cells import FIRST_S

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
    """Points of the Debian guest.

    :param windows: lab.debian.client.Window
    :param resumed: guest's time
    """
    return [_point(one.end - resumed, one.throughput, one.p50, one.p99,
                   one.requests, one.errors) for one in windows]


def _point(t: float, mbps: float, p50: float | None = None,
           p99: float | None = None, requests: int | None = None,
           errors: int | None = None) -> Point:
    return {'t': round(t, 2), 'mbps': round(mbps, 3), 'p50': p50,
            'p99': p99, 'requests': requests, 'errors': errors}


def mean(points: list[Point], begin: float, end: float,
         field: str = 'mbps') -> float | None:
    """Mean of a field of the points in (begin, end], None if there are
    none or it is not known."""
    times = [one['t'] for one in points]
    some = points[bisect.bisect_right(times, begin):
                  bisect.bisect_right(times, end)]
    if not some or any(one[field] is None for one in some):
        return None
    return sum(one[field] for one in some) / len(some)


def kept(points: list[Point], asked: float) -> list[Point]:
    """Those that are recorded.

    :param asked: when the migration was asked for, before the resumption:
        a negative number
    """
    return [one for one in points if asked - BEFORE_S <= one['t'] <= AFTER_S]


def recovery(points: list[Point], asked: float,
             field: str = 'mbps') -> float | None:
    """Throughput of the first seconds after the resumption as a multiple of
    that before the migration was asked for.

    :param field: mbps, or requests where reading says nothing
    """
    before = mean(points, asked - BEFORE_S, asked, field)
    first = mean(points, 0.0, FIRST_S, field)
    return first / before if before and first is not None else None
