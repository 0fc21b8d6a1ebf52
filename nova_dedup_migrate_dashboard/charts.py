# SPDX-License-Identifier: Apache-2.0
"""Charts as SVG, made by the server.

Each is beside a table with the same figures; so it is hidden from those who
hear the page.
"""

from __future__ import annotations

from typing import Any

from django.utils import html
from django.utils import safestring
from django.utils.translation import gettext as _

#: Path -> colour; told apart by those who do not see red and green.
COLOURS = {'peer': '#c05020', 'storage': '#2060a0', 'zero': '#b0b0b0'}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640, 200, 8, 22


def names() -> dict[str, str]:
    """Return the names of the paths."""
    return {'peer': _('sent by the source'),
            'storage': _('read from storage'), 'zero': _('zero')}


def rounds(found: list[dict[str, Any]]) -> safestring.SafeString:
    """Return stacked bars: pages by path, a bar for each round."""
    shown = found[-40:]
    most = max((sum(one['pages'].values()) for one in shown), default=0)
    if not most:
        return html.format_html('')
    step = (_WIDTH - _LEFT) / len(shown)
    parts = []
    for index, one in enumerate(shown):
        bottom = _HEIGHT - _BOTTOM
        for path, colour in COLOURS.items():
            pages = one['pages'].get(path, 0)
            height = pages / most * (_HEIGHT - _BOTTOM - 6)
            bottom -= height
            parts.append(html.format_html(
                '<rect x="{}" y="{}" width="{}" height="{}" fill="{}">'
                '<title>{}</title></rect>',
                *('%.1f' % value for value in (
                    _LEFT + index * step + step * 0.1, bottom, step * 0.8,
                    height)), colour, '%d %s' % (pages, names()[path])))
        parts.append(html.format_html(
            '<text x="{}" y="{}" font-size="11" text-anchor="middle">{}'
            '</text>', '%.1f' % (_LEFT + (index + 0.5) * step), _HEIGHT - 6,
            one['number']))
    return _svg(_HEIGHT, parts)


def shares(found: dict[str, Any]) -> safestring.SafeString:
    """Return one bar: pages by path."""
    total = sum(found.get(path) or 0 for path in COLOURS)
    if not total:
        return html.format_html('')
    parts, left = [], 0.0
    for path, colour in COLOURS.items():
        width = (found.get(path) or 0) / total * _WIDTH
        parts.append(html.format_html(
            '<rect x="{}" y="0" width="{}" height="14" fill="{}"/>',
            '%.1f' % left, '%.1f' % width, colour))
        left += width
    return _svg(14, parts)


def _svg(height: int, parts: list[Any]) -> safestring.SafeString:
    return html.format_html(
        '<svg class="dedup-chart" viewBox="0 0 {} {}" aria-hidden="true" '
        'preserveAspectRatio="none" width="100%" height="{}">{}</svg>',
        _WIDTH, height, height, html.format_html_join(
            '', '{}', ((part,) for part in parts)))
