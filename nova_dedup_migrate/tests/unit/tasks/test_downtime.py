# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.tasks import downtime
from nova_dedup_migrate.tests import base


def made(*entries):
    """Return Events of (time, name, status)."""
    return [events.Event(number, name, {'status': status} if status else {},
                         time)
            for number, (time, name, status) in enumerate(entries)]


class DowntimeTest(base.TestCase):

    def test_table(self):
        begin = ((1.0, 'MIGRATION', 'setup'), (1.1, 'MIGRATION', 'active'),
                 (5.0, 'STOP', None), (5.1, 'MIGRATION', 'pre-switchover'))
        for expected, entries in (
                (None, ()),
                (None, begin),
                (0.5, (*begin, (5.5, 'MIGRATION', 'completed'),
                       (9.0, 'STOP', None))),
                (0.25, (*begin, (5.25, 'MIGRATION', 'postcopy-active'),
                        (7.0, 'MIGRATION', 'completed'))),
                # rolled back, and the guest stopped for another reason
                (None, (*begin, (5.5, 'MIGRATION', 'cancelled'),
                        (5.6, 'RESUME', None))),
                (1.0, (*begin, (5.5, 'MIGRATION', 'failed'),
                       (5.6, 'RESUME', None), (7.0, 'STOP', None),
                       (8.0, 'MIGRATION', 'completed'))),
                # it was paused all the time
                (None, ((1.0, 'MIGRATION', 'setup'),
                        (3.0, 'MIGRATION', 'completed'))),
                # a clock that was set back
                (0.0, ((5.0, 'STOP', None),
                       (4.0, 'MIGRATION', 'completed'))),
                (None, ((5.0, 'STOP', None), (6.0, 'MIGRATION', None),
                        (7.0, 'MIGRATION', 7)))):
            self.assertEqual(expected, downtime.of_events(made(*entries)),
                             entries)
