# SPDX-License-Identifier: Apache-2.0
"""Values with two forms: text for tables, raw for JSON, CSV and YAML.

Each function takes None for "not known" and prints it as a dash.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import datetime
from typing import Any
from typing import TypeVar

from cliff import columns

from nova_dedup_migrate.planner import units

_Value = TypeVar('_Value')


class Formatted(columns.FormattableColumn):
    """A value and its text.

    :param value: as JSON has it
    :param text: as a table has it
    """

    def __init__(self, value: Any, text: str) -> None:
        super().__init__(value)
        self._text = text

    def human_readable(self) -> str:
        return self._text


def _formatted(value: _Value | None,
               form: Callable[[_Value], str]) -> Formatted:
    return Formatted(value, '-' if value is None else form(value))


def size(value: float | None) -> Formatted:
    """Bytes."""
    return _formatted(value, units.size)


def rate(value: float | None) -> Formatted:
    """Bytes per second."""
    return _formatted(value, units.rate)


def duration(value: float | None) -> Formatted:
    """Seconds."""
    return _formatted(value, units.duration)


def milliseconds(value: float | None) -> Formatted:
    return _formatted(value, '%d ms'.__mod__)


def time(value: datetime.datetime | None) -> Formatted:
    """A time in UTC."""
    return Formatted(None if value is None else value.isoformat(),
                     '-' if value is None
                     else value.strftime('%Y-%m-%d %H:%M:%S UTC'))


def percent(value: float | None) -> Formatted:
    """Per cent with a sign."""
    return _formatted(value, '%+.0f %%'.__mod__)


def share(value: float | None) -> Formatted:
    """A share of 0 to 1."""
    return _formatted(value, lambda known: '%.1f %%' % (100 * known))


def text(value: str) -> Formatted:
    """Text; a table shows a dash if it is empty."""
    return Formatted(value, value or '-')


def lines(values: Iterable[str]) -> Formatted:
    """Lines of text; a table shows a dash if there are none."""
    values = list(values)
    return Formatted(values, '\n'.join(values) or '-')


def figures(values: Mapping[str, Any] | None) -> Formatted:
    """Figures by name."""
    return _formatted(values, lambda known: '\n'.join(
        '%s: %s' % pair for pair in known.items()))
