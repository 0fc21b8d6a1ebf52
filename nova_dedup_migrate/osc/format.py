# SPDX-License-Identifier: Apache-2.0
"""Values of the API in tables; JSON, YAML and CSV have them as they are.

Names of servers are whatever a tenant has typed.  A table shows no
character that would move the cursor of a terminal or turn the text
around.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import json
from typing import Any

from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.planner import units

_LONGEST = 500


def clean(text: object) -> str:
    """Return a text for a terminal."""
    return ''.join(one if one.isprintable() else '?'
                   for one in str(text)[:_LONGEST])


def text(value: Any) -> columns.Formatted:
    return columns.Formatted(value, '-' if value in (None, '')
                             else clean(value))


def share(value: float | None) -> columns.Formatted:
    return columns.Formatted(value, '-' if value is None
                             else units.percent(value))


def band(value: Mapping[str, Any] | None) -> columns.Formatted:
    """Seconds: likely (low to high)."""
    return columns.Formatted(value, band_text(value))


def band_text(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return '-'
    if value['likely'] is None:
        return 'without end'
    made = units.duration(value['likely'])
    if value['low'] is not None and value['high'] is not None:
        made += ' (%s to %s)' % (units.duration(value['low']),
                                 units.duration(value['high']))
    return made


def anything(value: Any) -> Any:
    """A field of which nothing special is known."""
    if isinstance(value, (Mapping, list, tuple)):
        return columns.Formatted(value, clean(json.dumps(value)))
    if isinstance(value, str) or value is None:
        return text(value)
    return value


def row(found: Any, names: Iterable[str],
        forms: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a resource.

    :param names: of its fields
    :param forms: how to show some of them
    """
    return tuple(forms.get(name, anything)(_get(found, name))
                 for name in names)


def _get(found: Any, name: str) -> Any:
    try:
        return found[name]
    except KeyError:
        return None


def everything(found: Any, forms: Mapping[str, Any]
               ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Return all fields of a resource, for a command that shows one."""
    plain = found.to_dict(headers=False, computed=False,
                          original_names=True)
    for name in ('id', 'links', 'location'):
        if name in plain and (name != 'id' or 'uuid' in plain
                              or 'server_id' in plain
                              and 'drain_id' in plain):
            del plain[name]
    names = tuple(sorted(plain))
    return names, tuple(forms.get(name, anything)(plain[name])
                        for name in names)


FORMS: Mapping[str, Any] = {
    'share': share, 'eta': band, 'eta_memory': band, 'eta_disk': band,
    'total_time': lambda value: (band(value) if isinstance(value, Mapping)
                                 else columns.duration(value)),
    'link_bytes': columns.size, 'link_rate': columns.rate,
    'link_rate_limit': columns.rate, 'dirty_rate': columns.rate,
    'downtime_ms': columns.milliseconds,
    'working_set': columns.size, 'transferred_bytes': columns.size,
    'remaining_bytes': columns.size}
