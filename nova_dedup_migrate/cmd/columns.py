# SPDX-License-Identifier: Apache-2.0
"""Values that people read in words and programs as they are."""

from cliff import columns

from nova_dedup_migrate.planner import units


class Words(columns.FormattableColumn):
    """A value and its words.

    :param value: what JSON knows
    :param words: text
    """

    def __init__(self, value, words):
        super().__init__(value)
        self._words = words

    def human_readable(self):
        return self._words


def _worded(value, words):
    return Words(value, '-' if value is None else words(value))


def size(value):
    """Bytes, None if not known."""
    return _worded(value, units.size)


def rate(value):
    """Bytes per second."""
    return _worded(value, units.rate)


def duration(value):
    """Seconds, None if not known."""
    return _worded(value, units.duration)


def milliseconds(value):
    return _worded(value, '%d ms'.__mod__)


def time(value):
    """datetime, None if not known."""
    return Words(None if value is None else value.isoformat(),
                 '-' if value is None
                 else value.strftime('%Y-%m-%d %H:%M:%S UTC'))


def percent(value):
    """Signed per cent, None if not known."""
    return _worded(value, '%+.0f %%'.__mod__)


def text(value):
    return Words(value, value or '-')


def lines(values):
    """Several sentences."""
    return Words(list(values), '\n'.join(values) or '-')


def figures(values):
    """Figures by name, None if there are none."""
    return _worded(values, lambda known: '\n'.join(
        '%s: %s' % pair for pair in known.items()))
