# SPDX-License-Identifier: Apache-2.0
"""Bounds of what is decided, and the time left, calculated by hand."""

import dataclasses
import math

from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import replan
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases

_NONE = plan.Band(0.0, 0.0, 0.0)
_WIRE = 1 + 8 / 4096


def _plan(strategy=plan.STOCK, time=100.0, disk_time=0.0, **changes):
    made = plan.Prediction(bytes=_NONE, time=plan.Band(time, time, time),
                           downtime=_NONE, disk_time=disk_time)
    return plan.Plan(strategy, made, made, **changes)


class DecisionTest(base.TestCase):

    def reason(self, fetched, resent):
        return replan.replan(_plan(plan.SHARED_NAS), cases.make(),
                             replan.Observation(
                                 1.0, 2, fetched=fetched,
                                 resent=resent)).reason

    def test_evidence(self):
        """4096 pages have to have come to an end."""
        self.assertEqual('', self.reason(0, 4095))
        self.assertEqual('', self.reason(100, 3995))
        self.assertIn('only 0 %', self.reason(0, 4096))
        self.assertIn('only 2 %', self.reason(100, 3996))

    def test_help(self):
        """A page of twenty is some."""
        self.assertEqual('', self.reason(500, 9500))
        self.assertIn('only 5 %', self.reason(499, 9501))


class LeftTest(base.TestCase):

    def setUp(self):
        super().setUp()
        # the guest does not write, and no limit of Nova's hides a round
        self.facts = cases.make(options={'downtime_ms': 0},
                                guest={'in_use': 3e9, 'memory': 4e9,
                                       'hint_pages': 0})

    def left(self, plan=None, given=None, **fields):
        fields = {'time': 10.0, 'rounds': 2, 'link_rate': 1e8,
                  'active': False, **fields}
        return replan.replan(plan or _plan(), given or self.facts,
                             replan.Observation(**fields)).left

    def near(self, expected, value):
        self.assertLessEqual(abs(expected - value), 1e-9 * abs(expected),
                             (expected, value))

    def test_later_round(self):
        """What remains, over the link; then the devices."""
        self.near(10 * _WIRE + 0.02, self.left(remaining=1e9))
        # records that are on their way
        self.near(5 + 0.02, self.left(
            plan=_plan(plan.SHARED_NAS), outstanding=1e9,
            storage_rate=2e8, active=True))

    def test_disks_that_change(self):
        self.near(10 * _WIRE + 0.02 + 3, self.left(
            remaining=1e9, disk_remaining=3e8))

    def test_link_is_not_measured(self):
        """Then the predicted rate counts."""
        self.near(80 * _WIRE + 0.02, self.left(remaining=1e9, link_rate=0))

    def test_storage_is_not_measured(self):
        self.near(1e9 / 0.9e8 + 0.02, self.left(
            plan=_plan(plan.SHARED_NAS), outstanding=1e9, active=True,
            link_rate=5e7))

    def test_storage_is_never_faster_than_it_verifies(self):
        self.near(1e9 / 0.8e9 + 0.02, self.left(
            plan=_plan(plan.SHARED_NAS), outstanding=1e9, active=True,
            storage_rate=1e15))

    def test_postcopy(self):
        self.near(15, self.left(remaining=1e9, outstanding=5e8,
                                postcopy=True, share=0.5))

    def test_first_round(self):
        """3 of 4 GB are not zero, so 3/4 of what remains will be sent."""
        self.near(30 * _WIRE + 0.02, self.left(rounds=1, remaining=4e9))
        # 2 GB are sent and all zeros: half of 2 GB will be content
        self.near(10 * _WIRE + 0.02, self.left(
            rounds=1, remaining=1e9, sent=2e9, zero=1e9))
        # more was sent than there was: whatever remains is content
        self.near(10 * _WIRE + 0.02, self.left(
            rounds=1, remaining=1e9, sent=4e9, zero=4e9))

    def test_records_of_the_first_round(self):
        """1 GB of 3 is on disk; it was recorded, and half of it read."""
        given = cases.make(
            options={'downtime_ms': 0},
            guest={'in_use': 3e9, 'memory': 4e9, 'valid_share': 1.0,
                   'hint_pages': 10 ** 9 // 4096})
        duplicate = 10 ** 9 // 4096 * 4096
        sent = 3e9 - duplicate
        records = 5e8 / 4096 * 17 / 1e8 + 5e8 / 6e9
        self.near(sent / 1e8 * _WIRE + records + 0.02, self.left(
            plan=_plan(plan.SHARED_NAS), given=given, active=True,
            rounds=1, remaining=sent, recorded=duplicate, zero=1e9,
            outstanding=5e8, storage_rate=1e8))
        # compression alone records nothing
        self.near(30 * _WIRE + 0.02, self.left(
            plan=_plan(plan.COMPRESS), given=given, active=True, rounds=1,
            remaining=3e9, zero=1e9))

    def test_compressed(self):
        header = 8 / 4096
        for share, expected in ((0.5, 0.5), (0.0, 0.01), (-1, 0.01),
                                (1.0, 1.0), (7.0, 1.0)):
            self.near(10 * (expected + header) + 0.02, self.left(
                remaining=1e9, share=share))

    def test_nothing_was_compressed_yet(self):
        """As the sample says, until the first page was sent."""
        given = dataclasses.replace(self.facts, guest=dataclasses.replace(
            self.facts.guest, compressed_share=0.5))
        header = 8 / 4096
        compress = _plan(plan.COMPRESS, compression_threads=1)
        for plan_, active, sent, expected in (
                (compress, True, 0.0, 0.5), (compress, True, 1.0, 1.0),
                (compress, False, 0.0, 1.0),
                (_plan(plan.COMPRESS), True, 0.0, 1.0)):
            self.near(10 * (expected + header) + 0.02, self.left(
                plan=plan_, given=given, remaining=1e9, active=active,
                sent=sent))
        unknown = dataclasses.replace(self.facts)
        self.near(10 * _WIRE + 0.02, self.left(
            plan=compress, given=unknown, remaining=1e9, active=True))

    def test_before_memory(self):
        """100 s, of which the disks take 60."""
        planned = _plan(time=100.0, disk_time=60.0)
        for disks, time, expected in (
                (4e9, 10.0, 80.0), (0.0, 10.0, 90.0), (0.0, 70.0, 40.0)):
            self.near(expected, self.left(
                plan=planned, rounds=0, time=time, disk_remaining=disks))
        self.assertEqual(math.inf, self.left(
            plan=_plan(time=math.inf), rounds=0))
        # disks that took longer than all was to take
        self.near(40.0, self.left(plan=_plan(time=10.0, disk_time=60.0),
                                  rounds=0, disk_remaining=4e9))

    def test_downtime_limit_of_the_plan(self):
        """Rounds leave 3.2 MB, 320 ms; the limit alone is worth little."""
        given = cases.make(
            guest={'hint_pages': 0, 'in_use': 8e6, 'dirty_rate': 2e6},
            options={'downtime_ms': 500, 'downtime_steps': ((0, 1),),
                     'max_extra_downtime_ms': 400})
        for most, ends in ((None, False), (500.0, True)):
            left = self.left(plan=_plan(max_downtime_limit_ms=most),
                             given=given, remaining=4e6, link_rate=1e7,
                             dirty_rate=2e7)
            self.assertEqual(ends, math.isfinite(left), most)

    def test_timeout(self):
        """It has come already, so nothing is left to be done."""
        given = dataclasses.replace(self.facts, options=dataclasses.replace(
            self.facts.options, timeout=5.0))
        self.near(0.0, self.left(given=given, remaining=1e9))


class ShareTest(base.TestCase):

    def share(self, peer, pages, size):
        source = statistics.SourceStatistics(
            state='active', compressed_pages=pages, compressed_bytes=size)
        return replan.observe(progress.Progress(
            pages=progress.PagePaths(peer=peer),
            dedup=statistics.DedupStatistics(source=source)), 1.0).share

    def test_table(self):
        for peer, pages, size, expected in (
                (10, 0, 0, 1.0), (0, 0, 0, 1.0), (1, 1, 1024, 0.25),
                (4, 2, 4096, 0.75),
                # compression that makes it larger is not used
                (1, 1, 9000, 1.0),
                # the two counters are not read at the same time
                (2, 5, 4096, 0.5)):
            self.assertEqual(expected, self.share(peer, pages, size))

    def test_inactive(self):
        source = statistics.SourceStatistics(state='disarmed')
        self.assertFalse(replan.observe(progress.Progress(
            dedup=statistics.DedupStatistics(source=source)), 1.0).active)


class ProgressTest(base.TestCase):

    def test_bytes_of_one_that_does_not_end(self):
        """6 of 10 KiB, whichever way they went."""
        given = cases.make(guest={'dirty_rate': 1e9})
        endless = choose.choose(given)
        share, left = replan.progress(endless, given, replan.Observation(
            time=3.0, rounds=0, sent=1024, zero=1024, fetched=1,
            remaining=1024, outstanding=2048, disk_remaining=1024))
        self.assertEqual((0.6, math.inf), (share, left))
        self.assertEqual((0.25, math.inf), replan.progress(
            endless, given, replan.Observation(time=3.0, sent=1024,
                                               remaining=3072)))
        self.assertEqual((0.0, math.inf), replan.progress(
            endless, given, replan.Observation(time=3.0)))

    def test_without_facts(self):
        now = replan.Observation(time=30.0, rounds=1, link_rate=1e7,
                                 remaining=6e8, disk_remaining=1e8,
                                 share=0.5)
        self.assertEqual((30 / 70, 40.0), replan.progress(
            _plan(), None, now))
        self.assertEqual((30 / 70, 40.0), replan.progress(
            None, cases.make(), now))

    def test_share_that_is_not_known(self):
        self.assertEqual((0.3, 70.0), replan.progress(
            None, None, replan.Observation(
                time=30.0, rounds=1, link_rate=1e7, remaining=7e8,
                share=None)))

    def test_only_a_rate(self):
        # nothing remains in a later round: it ends now
        self.assertEqual((1.0, 0.0), replan.progress(
            None, None, replan.Observation(2.0, rounds=1, link_rate=1e7)))
        # nothing remains before the first: it has not begun
        self.assertEqual((0.0, math.inf), replan.progress(
            None, None, replan.Observation(2.0, link_rate=1e7)))
        # disks are copied
        self.assertEqual((0.5, 2.0), replan.progress(
            None, None, replan.Observation(2.0, link_rate=1e7,
                                           disk_remaining=2e7)))
        self.assertEqual((0.0, 0.0), replan.progress(
            None, None, replan.Observation(0.0, rounds=1, link_rate=1e7)))

    def test_disks_that_cannot_be_read_are_not_left_out(self):
        disks = (cases.disk(copy=facts.NONE), cases.disk(device=''))
        given = cases.make(disks=disks, options={'downtime_ms': 0},
                           guest={'in_use': 1e9, 'memory': 1e9})
        left = replan.replan(
            _plan(plan.SHARED_NAS), given, replan.Observation(
                0.0, rounds=1, remaining=1e9, link_rate=1e8)).left
        self.assertAlmostEqual(10 * _WIRE + 0.02, left)
