# SPDX-License-Identifier: Apache-2.0
"""Figures in words."""

from collections.abc import Callable
import math

from nova_dedup_migrate.planner import plan


def size(value: float) -> str:
    """Return bytes as 1.2 GB; powers of ten, as networks are sold."""
    if math.isinf(value):
        return 'without end'
    for unit in ('B', 'kB', 'MB', 'GB', 'TB'):
        if value < 999.5:
            return _three(value) + ' ' + unit
        value /= 1000
    return _three(value) + ' PB'


def rate(value: float) -> str:
    """Return bytes/s as 12.5 MB/s."""
    return size(value) + '/s'


def duration(seconds: float) -> str:
    """Return seconds as 0.3 s, 42 s, 3 min 5 s, 2 h 10 min."""
    if math.isinf(seconds):
        return 'without end'
    if seconds < 10:
        return '%.1f s' % seconds
    if seconds < 99.5:
        return '%.0f s' % seconds
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return '%d min %d s' % (minutes, rest)
    return '%d h %d min' % divmod(minutes, 60)


def milliseconds(seconds: float) -> str:
    """Return seconds as 120 ms."""
    if seconds >= 9.9995:
        return duration(seconds)
    return '%.0f ms' % (seconds * 1000)


def percent(share: float) -> str:
    """Return 0.42 as 42 %."""
    return '%.0f %%' % (share * 100)


def band(value: plan.Band, form: Callable[[float], str]) -> str:
    """Return a plan.Band as: 42 s (36 s to 60 s)."""
    if math.isinf(value.high) and not math.isinf(value.low):
        return '%s (%s or more)' % (form(value.likely), form(value.low))
    return '%s (%s to %s)' % (form(value.likely), form(value.low),
                              form(value.high))


def _three(value: float) -> str:
    """Return value with three digits at most, 12.5, and no bare .0."""
    text = '%.*f' % (0 if value >= 99.95 else 1, value)
    return text[:-2] if text.endswith('.0') else text
