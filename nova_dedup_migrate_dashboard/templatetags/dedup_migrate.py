# SPDX-License-Identifier: Apache-2.0
"""Figures and words as people read them, and charts."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from django import template
from django.utils import dateparse
from django.utils import formats
from django.utils import timezone
from django.utils.translation import gettext as _

from nova_dedup_migrate.planner import units
from nova_dedup_migrate_dashboard import charts
from nova_dedup_migrate_dashboard import progress
from nova_dedup_migrate_dashboard import words

register = template.Library()
_NOT_KNOWN = '–'


def _or_unknown(form: Callable[[float], str]) -> Callable[[Any], str]:
    def show(value: Any) -> str:
        return _NOT_KNOWN if value is None else form(value)
    return show


register.filter('size', _or_unknown(units.size))
register.filter('rate', _or_unknown(units.rate))
register.filter('duration', _or_unknown(units.duration))
register.filter('milliseconds', _or_unknown(
    lambda value: units.milliseconds(value / 1000)))


def _band(value: Mapping[str, Any] | None, form: Callable[[float], str]
          ) -> str:
    if value is None:
        return _NOT_KNOWN
    low, likely, high = (value[name] for name in ('low', 'likely', 'high'))
    if likely is None:
        return _('without end') if low is None else _(
            'without end, at best %s') % form(low)
    if low is None and high is None:
        return form(likely)
    if high is None:
        return _('%(likely)s (%(low)s or more)') % {
            'likely': form(likely), 'low': form(low or 0)}
    if form(low or 0) == form(high):
        return form(likely)
    return _('%(likely)s (%(low)s to %(high)s)') % {
        'likely': form(likely), 'low': form(low or 0), 'high': form(high)}


@register.filter
def band(value: Mapping[str, Any] | None) -> str:
    """Return seconds: likely, and the range of nine cases in ten."""
    return _band(value, units.duration)


@register.filter
def size_band(value: Mapping[str, Any] | None) -> str:
    return _band(value, units.size)


@register.filter
def short_band(value: Mapping[str, Any] | None) -> str:
    return _band(value, units.milliseconds)


@register.filter
def percent(value: float | None) -> int:
    """Return a share as a whole number of per cent."""
    return max(0, min(100, int(100 * (value or 0))))


@register.filter
def when(value: str | None) -> str:
    """Return a time of the API in the user's time zone."""
    found = dateparse.parse_datetime(value) if value else None
    if found is None:
        return _NOT_KNOWN
    return formats.date_format(timezone.localtime(found),
                               'Y-m-d H:i:s')


@register.filter
def name(value: Any, kind: str) -> Any:
    """Return a word of the API as users read it, see words.NAMES."""
    return words.NAMES[kind].get(value, str(value or '').replace('_', ' '))


@register.filter
def short(value: Any) -> str:
    """Return the beginning of a UUID, to be shown beside a name."""
    return str(value or '')[:8]


@register.filter
def saved(one: Mapping[str, Any]) -> int | None:
    """Return the per cent of memory that was not sent."""
    found = progress.saved(one)
    return None if found is None else percent(found)


@register.inclusion_tag('dedup_migrate/_state.html')
def state(value: str, kind: str) -> dict[str, Any]:
    """Show a state; kind is migration, drain or server."""
    text, colour = words.KINDS[kind].get(value, (value, 'idle'))
    return {'text': text, 'colour': colour}


@register.inclusion_tag('dedup_migrate/_bar.html')
def bar(share: float | None, label: str) -> dict[str, Any]:
    """Show how much is done; label names it for those who hear it."""
    return {'known': share is not None, 'percent': percent(share),
            'label': label}


@register.inclusion_tag('dedup_migrate/_parts.html')
def paths_bar(found: Mapping[str, Any]) -> dict[str, Any]:
    """Show bytes by path as one bar, with a text."""
    parts = charts.paths(found)
    return {'parts': parts, 'text': ', '.join(
        '%s %s' % (units.size(one.value), words.PATHS[one.name])
        for one in parts)}


@register.inclusion_tag('dedup_migrate/_parts.html')
def groups_bar(drain: Mapping[str, Any]) -> dict[str, Any]:
    """Show the servers of a drain as one bar, with a text."""
    return {'parts': drain['bar'], 'text': ', '.join(
        '%d %s' % (one.value, words.GROUPS[one.name])
        for one in drain['bar'])}


@register.inclusion_tag('dedup_migrate/_chart.html')
def rounds_chart(rounds: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {'chart': charts.rounds(rounds)}
