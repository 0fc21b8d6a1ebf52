# SPDX-License-Identifier: Apache-2.0
"""What predict gives the model: likely, a little better, much worse."""

import math
from unittest import mock

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import model
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases

#: Nothing is known of a rate.
_UNKNOWN = {'configured': None, 'measured': None}


class CasesTest(base.TestCase):
    """The three cases, in the order better, likely, worse."""

    def cases(self, dedup=True, threads=0, most=math.inf, **changes):
        known = normal.normal(cases.make(**changes))
        with mock.patch.object(model, 'migrate',
                               wraps=model.migrate) as migrate:
            predict.predict(known, known.disks if dedup else (), most,
                            threads)
        return [call.args[0] for call in migrate.call_args_list]

    def check(self, field, expected, **changes):
        found = [getattr(case, field) for case in self.cases(**changes)]
        self.assertEqual(len(expected), len(found))
        for want, got in zip(expected, found, strict=True):
            # one byte of 10 GB is seen
            self.assertLessEqual(abs(want - got), 1e-12 * abs(want),
                                 (field, want, got))

    def test_link(self):
        for link, expected in (
                ({'measured': 1e7}, (1.1e7, 1e7, 0.85e7)),
                ({'host_limit': 1e7}, (1.1e7, 1e7, 0.85e7)),
                ({'configured': 1e7}, (1.1e7, 1.05e7, 0.85e7)),
                ({}, (1.25e9, 1.25e8, 1.25e7)),
                ({'sharers': 1}, (0.625e9, 0.625e8, 0.625e7)),
                ({'measured': 1e7, 'sharers': 3},
                 (1.1e7 / 4, 1e7 / 4, 0.85e7 / 4)),
                # the slower one, in each case
                ({'measured': 1.02e7, 'configured': 1e7},
                 (1.1e7, 1.02e7, 0.85e7))):
            self.check('link', expected, link={**_UNKNOWN, **link})

    def test_final_link(self):
        """While the guest is stopped, QEMU keeps no limit."""
        for link, expected in (
                ({'measured': 4e7, 'configured': 1e7},
                 (4.4e7, 4e7, 3.4e7)),
                ({'configured': 1e7}, (1.1e7, 1.05e7, 0.85e7)),
                ({'measured': 1e7, 'host_limit': 2e7},
                 (2.2e7, 2e7, 1.7e7))):
            self.check('final_link', expected, link={**_UNKNOWN, **link})

    def test_sender(self):
        """A thread sends so much, and multifd has more of them."""
        link = {'configured': None, 'measured': 1e11}
        for options, rate in (
                ({}, 2e9), ({'tls': True}, 0.4e9),
                ({'multifd_channels': 1}, 2e9),
                ({'multifd_channels': 4}, 8e9),
                ({'multifd_channels': 4, 'tls': True}, 1.6e9)):
            for field in 'link', 'final_link':
                self.check(field, (rate,) * 3, link=link, options=options)

    def test_storage(self):
        self.check('storage', (1e8, 0.9e8, 0.4e8))
        self.check('storage', (0.5e8, 0.45e8, 0.2e8), link={'sharers': 1})
        # not known: but no faster than it verifies
        self.check('storage', (0.8e9, 1e8, 1e7),
                   disks=(cases.disk(storage_rate=None),))
        self.check('storage', (2.5e8, 2.5e7, 2.5e6), link={'sharers': 3},
                   disks=(cases.disk(storage_rate=None),))
        self.check('storage', (1e8, 1 / (0.95 / 0.9e8 + 0.05 / 1e7),
                               1 / (0.5 / 0.4e8 + 0.5 / 1e7)),
                   disks=(cases.disk(scattered_rate=1e7),))

    def test_storage_of_disks_without_a_size(self):
        """Each counts the same."""
        self.assertEqual(1.5e8, predict.storage_rate((
            cases.disk(size=0, storage_rate=1e8),
            cases.disk(size=0, storage_rate=3e8))))

    def test_guest_that_writes(self):
        self.check('dirty_rate', (0.7e6, 1.2e6, 3e6),
                   guest={'dirty_rate': 1e6})
        self.check('working_set', (1e8, 2.5e8, 1e9),
                   guest={'in_use': 1e9})
        # twice what it was seen to write in a second is the least
        self.check('working_set', (4e8, 4e8, 1e9),
                   guest={'in_use': 1e9, 'dirty_rate': 2e8})

    def test_writes_that_are_on_the_disk_soon(self):
        guest = {'dirty_rate': 1e7, 'disk_write_rate': 6e6}
        self.check('dirty_duplicate', (6 / 7, 0.5, 0.2), guest=guest)
        self.check('dirty_duplicate', (0, 0, 0), guest=guest, dedup=False)
        self.check('dirty_duplicate', (1, 1, 1), guest={
            'dirty_rate': 1.0, 'disk_write_rate': 6e6})
        self.check('dirty_duplicate', (0, 0, 0), guest={
            'dirty_rate': 0.0, 'disk_write_rate': 6e6})

    def test_memory_in_use(self):
        for guest, expected in (
                ({'in_use': 2e9, 'in_use_error': 1e6},
                 (2e9 - 2e6, 2e9, 2e9 + 2e6)),
                ({'in_use': 4.2e9, 'in_use_error': 1e9, 'memory': 4.3e9},
                 (2.2e9, 4.2e9, 4.3e9)),
                # of the pages that QEMU has touched, some are zero; its
                # own memory is of the same size, more or less
                ({'resident': 3e9}, (0.9 * 3e9 - 0.96e8, 3e9 - 0.64e8, 3e9))):
            self.check('unique', expected, guest=guest, dedup=False)
            memory = cases.make(guest=guest).guest.memory
            self.check('zero', [memory - one for one in expected],
                       guest=guest, dedup=False)

    def test_hints_that_hold(self):
        pages = {'hint_pages': 10000, 'in_use': 1e9}
        self.check('duplicate', [4096e4 * share
                                 for share in (1.0, 0.99, 0.7)], guest=pages)
        self.check('duplicate', [4096e4 * share
                                 for share in (0.84, 0.8, 0.68)],
                   guest={**pages, 'valid_share': 0.8})
        # no more than all
        self.check('duplicate', [4096e4, 4096e4, 4096e4 * 0.85],
                   guest={**pages, 'valid_share': 1.0})

    def test_listed_pages_that_no_disk_counts(self):
        """200 pages are of disks; the guest has listed the others."""
        disks = (cases.disk(hint_pages=200),
                 cases.disk(device='b', target='vdb', hint_pages=0))
        for listed, expected in ((0, 198), (300, 495), (5000, 990)):
            guest = {'hint_pages': 1000, 'map_pages': listed}
            known = normal.normal(cases.make(guest=guest, disks=disks))
            self.assertAlmostEqual(
                expected, predict.duplicate_bytes(known, disks) / 4096)

    def test_downtime(self):
        self.check('left', (0.0, 0.5, 1.0))
        self.check('devices', (0.005, 0.02, 0.06))
        self.check('devices', (0.065, 0.22, 0.56),
                   options={'switch_over': 0.2})
        self.check('extra_downtime', (0.05,) * 3)
        self.check('extra_downtime', (0.2,) * 3,
                   options={'max_extra_downtime_ms': 200})
        self.check('extra_downtime', (0.0,) * 3,
                   options={'adapt_downtime_limit': False})
        self.check('max_downtime', (0.5,) * 3)
        self.check('max_downtime', (0.3,) * 3, most=300)
        self.check('max_downtime', (0.5,) * 3, most=900)

    def test_compression(self):
        guest = {'compressed_share': 0.5}
        self.check('share', (0.35, 0.525, 0.8), guest=guest, threads=2)
        self.check('share', (0.7, 1.0, 1.0), guest={'compressed_share': 1.0},
                   threads=2)
        self.check('share', (1.0,) * 3, guest=guest)
        self.check('share', (1.0,) * 3, threads=2)
        for case in self.cases(guest=guest):
            self.assertEqual(math.inf, case.compressed_rate)

    def test_threads_that_compress(self):
        """400 MB/s each; the destination needs a third of a processor."""
        for source, destination, expected in (
                (None, None, 2.0), (1.5, None, 1.5), (0.0, None, 0.25),
                (8.0, None, 2.0), (None, 0.5, 1.5), (None, 0.0, 0.75),
                (1.5, 0.1, 0.75)):
            self.check(
                'compressed_rate', (expected * 0.4e9,) * 3, threads=2,
                guest={'compressed_share': 0.5},
                source=facts.End('a', True, processors=source),
                destination=facts.End('b', True, processors=destination))

    def test_threads(self):
        for idle, expected in ((None, 1), (0.0, 1), (0.9, 1), (2.9, 2),
                               (4.0, 4), (64.0, 4)):
            self.assertEqual(expected, predict.threads(cases.make(
                source=facts.End('a', True, processors=idle))))

    def test_block_migration(self):
        disks = (cases.disk(to_copy=1e9), cases.disk(to_copy=2e9))
        self.check('disk_bytes', (3e9,) * 3, disks=disks,
                   options={'block_migration': True})
        self.check('disk_bytes', (0.0,) * 3, disks=disks)
        self.check('disk_write_rate', (5e6,) * 3,
                   guest={'disk_write_rate': 5e6})
        self.check('disk_write_rate', (0.0,) * 3)

    def test_downtime_steps(self):
        options = facts.Options(downtime_steps=((60, 500), (0, 50)))
        self.assertEqual(((0.0, 0.05), (60.0, 0.5)),
                         predict.downtime(options))
        self.assertEqual(((0.0, 0.05), (50.0, 0.5)),
                         predict.downtime(options, 10.0))
        self.assertEqual(((0.0, 0.3),),
                         predict.downtime(facts.Options(downtime_ms=300)))


class BandTest(base.TestCase):

    def test_margin(self):
        """What the model leaves out is 3 % of its best and worst."""
        outcomes = [model.Outcome(bytes=value, time=2 * value,
                                  downtime=3 * value, end=end)
                    for value, end in ((100.0, 'pre-copy'), (200.0, 'forced'),
                                       (300.0, 'never'))]
        with mock.patch.object(model, 'migrate', side_effect=outcomes):
            found = predict.predict(cases.make())
        self.assertEqual(plan.Band(97.0, 200.0, 309.0), found.bytes)
        self.assertEqual(plan.Band(194.0, 400.0, 618.0), found.time)
        self.assertEqual(plan.Band(291.0, 600.0, 927.0), found.downtime)
        # as is likely
        self.assertEqual(('forced', False), (found.end, found.converges))

    def test_likely(self):
        known = cases.make(guest={'dirty_rate': 1e6, 'in_use': 1e9,
                                  'memory': 4e9, 'hint_pages': 10000})
        self.assertEqual(1.2e6, predict.dirty_rate(known))
        self.assertEqual(2.5e8, predict.working_set(known))
        self.assertEqual(1.25e7, predict.link_rate(known))
        # while the guest runs: later there is no limit
        self.assertEqual(1.05e7, predict.link_rate(cases.make(
            link={'configured': 1e7, 'measured': 4e7})))
        self.assertEqual(0.9e8, predict.storage(known, known.disks))
        duplicate = 10000 * 0.99 * 4096
        self.assertEqual((1e9 - duplicate, duplicate, 3e9),
                         predict.memory(known, known.disks))
        self.assertEqual((1e9, 0.0, 3e9), predict.memory(known, ()))
