# SPDX-License-Identifier: Apache-2.0
"""Geometry of the charts; templates/dedup_migrate/_chart.html draws it.

Coordinates are text, as Django would write a number in the user's
language.  Each chart is beside a table or a text with the same figures, so
it is hidden from those who hear the page.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from nova_dedup_migrate.planner import units

#: Paths from the bottom of the chart upwards: what the link carries first.
PATHS = ('peer', 'storage', 'zero')
PAGE = 4096
WIDTH, HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 8, 26


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a bar.

    :ivar name: class of its colour
    :ivar value: what it stands for
    :ivar x: and width: per cent of the bar
    """

    name: str
    value: float
    x: str
    width: str


@dataclasses.dataclass(frozen=True)
class Tick:
    at: str
    text: str


@dataclasses.dataclass(frozen=True)
class Chart:
    """Areas on top of each other over the time.

    :ivar areas: (path, points as in SVG)
    :ivar rounds: x of the ends of rounds
    :ivar left: x of the axis; right, top and bottom likewise
    """

    areas: tuple[tuple[str, str], ...]
    rounds: tuple[str, ...]
    times: tuple[Tick, ...]
    sizes: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def parts(values: Iterable[tuple[str, float | None]]) -> list[Part]:
    """Return the parts of a bar; none if all are 0.

    :param values: (class, value)
    """
    given = [(name, float(value or 0)) for name, value in values]
    total = sum(value for _, value in given)
    made, left = [], 0.0
    for name, value in given:
        if value:
            width = 100 * value / total
            made.append(Part(name, value, _text(left), _text(width)))
            left += width
    return made


def paths(found: Mapping[str, int | None]) -> list[Part]:
    """Return the parts of a bar: bytes of memory by path."""
    return parts((path, found.get(path)) for path in PATHS)


def rounds(found: Iterable[Mapping[str, Any]]) -> Chart | None:
    """Return bytes by path over the time; None if nothing was sent.

    :param found: rounds as the API has them
    """
    seconds = 0.0
    sums = dict.fromkeys(PATHS, 0)
    points: list[tuple[float, tuple[int, ...]]] = [(0.0, (0, 0, 0))]
    for one in found:
        seconds += max(0.0, float(one['seconds']))
        for path in PATHS:
            sums[path] += one['pages'].get(path, 0) * PAGE
        points.append((seconds, tuple(sums.values())))
    most = sum(points[-1][1])
    if not most or not seconds:
        return None
    times, sizes = _ticks(seconds), _ticks(most)

    def x(value: float) -> str:
        return _text(_LEFT + value / max(seconds, times[-1])
                     * (WIDTH - _LEFT - _RIGHT))

    def y(value: float) -> str:
        return _text(HEIGHT - _BOTTOM - value / max(most, sizes[-1])
                     * (HEIGHT - _BOTTOM - _TOP))

    areas = []
    for index, path in enumerate(PATHS):
        if not sums[path]:
            continue
        below = [(at, sum(values[:index])) for at, values in points]
        above = [(at, sum(values[:index + 1])) for at, values in points]
        areas.append((path, ' '.join(
            '%s,%s' % (x(at), y(value))
            for at, value in (*above, *reversed(below)))))
    return Chart(
        areas=tuple(areas),
        rounds=tuple(x(at) for at, _ in points[1:-1]),
        times=tuple(Tick(x(value), units.duration(value))
                    for value in times[1:]),
        sizes=tuple(Tick(y(value), units.size(value)) for value in sizes))


def _ticks(most: float) -> list[float]:
    """Return about four round numbers from 0 on, the last below most."""
    step = 10.0 ** math.floor(math.log10(most / 2))
    while most / step > 5:
        step *= 2.5 if str(step).lstrip('0.')[0] == '2' else 2
    return [step * index for index in range(int(most / step) + 1)]


def _text(value: float) -> str:
    return '%.2f' % value
