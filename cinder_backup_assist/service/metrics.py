# SPDX-License-Identifier: Apache-2.0
"""What the daemon counts, as text of Prometheus' format."""

from __future__ import annotations

import threading

#: Name -> (kind, help).
_METRICS = {
    'sessions_total': ('counter', 'Connections with a valid ticket'),
    'sessions_failed_total': ('counter', 'Connections that ended by an error '
                              'of this daemon or of the store'),
    'tickets_issued_total': ('counter', 'Tickets issued'),
    'tickets_refused_total': ('counter', 'Tickets presented and refused'),
    'requests_refused_total': ('counter', 'Requests refused on the bus'),
    'sent_bytes_total': ('counter', 'Bytes of volumes that were sent'),
    'stream_bytes_total': ('counter', 'Bytes of bodies of streams, as they '
                           'were sent'),
    'missing_bytes_total': ('counter', 'Bytes of volumes that the store did '
                            'not have, or not as the backup had them'),
    'objects_failed_total': ('counter', 'Objects of the store that could not '
                             'be read'),
    'connections': ('gauge', 'Connections to the data port'),
}
_PREFIX = 'cinder_backup_assist_'


class Metrics:
    """Counters; each has a name of _METRICS."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._values = dict.fromkeys(_METRICS, 0)

    def add(self, name: str, amount: int = 1) -> None:
        with self._guard:
            self._values[name] += amount

    def value(self, name: str) -> int:
        with self._guard:
            return self._values[name]

    def text(self) -> str:
        with self._guard:
            values = dict(self._values)
        return ''.join('# HELP %s%s %s\n# TYPE %s%s %s\n%s%s %d\n' % (
            _PREFIX, name, words, _PREFIX, name, kind, _PREFIX, name,
            values[name]) for name, (kind, words) in _METRICS.items())
