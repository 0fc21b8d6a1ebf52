# SPDX-License-Identifier: Apache-2.0
"""Figures as people read them."""

from __future__ import annotations

from typing import Any

from django import template
from django.utils import safestring
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from nova_dedup_migrate_dashboard import charts

register = template.Library()


@register.filter
def seconds(value: float | None) -> str:
    """Return a duration, rounded as one would say it."""
    if value is None:
        return _('unknown')
    whole = round(value)
    if whole < 60:
        return ngettext('%d second', '%d seconds', whole) % whole
    if whole < 5400:
        return ngettext('%d minute', '%d minutes',
                        round(whole / 60)) % round(whole / 60)
    return _('%.1f hours') % (whole / 3600)


@register.filter
def band(value: dict[str, Any] | None) -> str:
    """Return the likely value of a band of seconds, and its ends."""
    if not value or value.get('likely') is None:
        return _('unknown')
    low, high = value.get('low'), value.get('high')
    likely = seconds(value['likely'])
    if low is None:
        return likely
    if high is None:
        return _('%(likely)s (at least %(low)s)') % {
            'likely': likely, 'low': seconds(low)}
    if seconds(low) == seconds(high):
        return likely
    return _('%(likely)s (%(low)s to %(high)s)') % {
        'likely': likely, 'low': seconds(low), 'high': seconds(high)}


@register.filter
def size(value: float | None) -> str:
    """Return bytes in decimal units."""
    if value is None:
        return _('unknown')
    for unit in ('B', 'kB', 'MB', 'GB'):
        if value < 1000:
            return '%.3g %s' % (value, unit)
        value /= 1000
    return '%.3g TB' % value


@register.filter
def rate(value: float | None) -> str:
    """Return bytes per second as megabits per second."""
    return _('unknown') if value is None else '%.0f Mbit/s' % (value / 125e3)


@register.filter
def percent(value: float | None) -> int:
    """Return a share as a whole number of per cent."""
    return max(0, min(100, round(100 * (value or 0))))


@register.filter
def short(value: Any) -> str:
    """Return the beginning of a UUID, to be shown beside a name."""
    return str(value or '')[:8]


@register.filter
def words(value: Any) -> str:
    """Return a state as words."""
    return str(value or '').replace('_', ' ')


@register.simple_tag
def rounds_chart(rounds: list[dict[str, Any]]) -> safestring.SafeString:
    return charts.rounds(rounds)


@register.simple_tag
def shares_bar(shares: dict[str, Any]) -> safestring.SafeString:
    return charts.shares(shares)
