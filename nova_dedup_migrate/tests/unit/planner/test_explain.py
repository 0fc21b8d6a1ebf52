# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import working_set
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
        self.assertIn('(an assumption: it was not measured', text)
        self.assertIn('its own copy; the rate at which the destination '
                      'reads it was not measured.', text)

    def test_facts_that_are_measured(self):
        text = _text(guest={'valid_share': 0.87}, link={'sharers': 2},
                     disks=(cases.disk(scattered_rate=4e6,
                                       hint_pages=100000),))
        for part in (
                'went to its disks (a sample: 87 % of it unchanged since). ',
                '(live_migration_bandwidth, measured, shared with 2 other '
                'migrations)',
                'at 100 MB/s, scattered blocks at 4 MB/s; 410 MB of memory '
                'are from it.'):
            self.assertIn(part, text)

    def test_working_set(self):
        windows = (working_set.Window(10.0, 30e6, 40e6, 90.0),
                   working_set.Window(1.0, 10e6, 10e6, 5.0))
        self.assertIn(
            'The guest was seen to write to 10 MB in 1 s, 30 MB in 10 s: '
            'without deduplication this link leads to ',
            _text(guest={'windows': windows}))
        self.assertNotIn('was seen to write', _text())

    def test_working_set_that_is_too_large(self):
        windows = (working_set.Window(1.0, 1e9, 1e9), )
        self.assertIn(', which is above the limit.',
                      _text(guest={'windows': windows}))

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
                ({}, 'the migration will not end'),
                ({'timeout': 3200.0}, 'will abort the migration'),
                ({'timeout': 3200.0, 'force_complete': True},
                 'force the migration to complete'),
                ({'postcopy': True}, 'ends in post-copy')):
            self.assertIn(part, _text(guest=busy, options=options))
