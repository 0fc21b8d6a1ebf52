# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases


def _text(**changes):
    return ' '.join(choose.choose(cases.make(**changes)).explanation)


class ExplainTest(base.TestCase):

    def test_chosen(self):
        text = _text(guest={'dirty_rate': 1e6})
        for part in (
                'Strategy auto, from nova.conf.',
                'uses 3.2 GB of its 4.3 GB of memory; 1.6 GB of that came',
                'writes to memory at 1 MB/s',
                'The link carries 12.5 MB/s (live_migration_bandwidth, '
                'measured).',
                'Disk vda: both hosts open it; the destination reads it at '
                '100 MB/s.',
                'An ordinary migration: 4 min ',
                'Leaving out 1.6 GB that the destination reads',
                'Chosen: shared_nas. It is expected to save '):
            self.assertIn(part, text)

    def test_unknown(self):
        text = _text(link={'configured': None, 'measured': None},
                     disks=(cases.disk(copy='own', storage_rate=None),))
        self.assertIn('(assumed: nothing is known about it)', text)
        self.assertIn('its own copy; the destination was not asked', text)

    def test_unused_disk(self):
        self.assertIn(
            'Disk vdb is not used: it is another file.',
            _text(disks=(cases.disk(),
                         cases.disk(target='vdb', copy='none',
                                    reason='it is another file'))))

    def test_many_disks(self):
        self.assertIn('And 12 more disks.',
                      _text(disks=(cases.disk(),) * 20))

    def test_what_ends_a_busy_guest(self):
        busy = {'dirty_rate': 1e9}
        for options, part in (
                ({}, 'nothing will end it'),
                ({'timeout': 3200.0}, 'will abort it'),
                ({'timeout': 3200.0, 'force_complete': True},
                 'force it to complete'),
                ({'postcopy': True}, 'ends in post-copy')):
            self.assertIn(part, _text(guest=busy, options=options))
