# SPDX-License-Identifier: Apache-2.0
import dataclasses
import math

from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import replan
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases

_GOOD = replan.Observation(
    time=10.0, rounds=2, link_rate=12.5e6, remaining=1e9, outstanding=5e8,
    storage_rate=1e8, fetched=100000, nacks=20, resent=100)


class ReplanTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.facts = cases.make()
        self.plan = choose.choose(self.facts)

    def _decide(self, **changes):
        return replan.replan(self.plan, self.facts,
                             dataclasses.replace(_GOOD, **changes))

    def test_keep(self):
        self.assertEqual(('keep', ''), (self._decide().action,
                                        self._decide().reason))

    def test_disarm(self):
        decision = self._decide(fetched=100, resent=100000)
        self.assertEqual('disarm', decision.action)
        self.assertIn('delivered only 0 % of the pages', decision.reason)

    def test_little_evidence_is_none(self):
        self.assertEqual('keep', self._decide(fetched=0, resent=4000).action)

    def test_keep_what_storage_helps_with(self):
        self.assertEqual('keep', self._decide(fetched=20000).action)

    def test_keep_where_there_is_nothing_to_take_back(self):
        bad = {'fetched': 0, 'resent': 100000}
        self.assertEqual('keep', self._decide(active=False, **bad).action)
        self.plan = choose.choose(cases.make(options={'strategy': 'off'}))
        self.assertEqual('keep', self._decide(**bad).action)

    def test_left(self):
        # 1 GB at 12.5 MB/s, half a second of it in the pause or not
        self.assertAlmostEqual(80, self._decide().left, delta=1)
        self.assertGreater(self._decide(dirty_rate=5e6).left, 90)
        self.assertEqual(math.inf, self._decide(dirty_rate=1e9).left)

    def test_downtime_limit_of_now(self):
        """Nova permits 40 ms at first, half a second from 60 s on."""
        self.facts = cases.make(options={
            'downtime_ms': 500, 'downtime_steps': ((0, 40), (60, 500))})
        busy = {'dirty_rate': 2.4e6, 'remaining': 5e6, 'outstanding': 0.0}
        early = self._decide(time=10.0, **busy).left
        late = self._decide(time=70.0, **busy).left
        self.assertGreater(early, late)
        self.assertLess(late, 1.0)

    def test_left_without_any_figures(self):
        for rounds in (0, 2):
            decision = replan.replan(self.plan, self.facts,
                                     replan.Observation(math.nan, rounds))
            self.assertEqual('keep', decision.action)
            self.assertTrue(math.isfinite(decision.left))

    def test_timeout_counts_from_the_start(self):
        self.facts = cases.make(options={'timeout': 30.0})
        self.assertAlmostEqual(20, self._decide(dirty_rate=1e9).left,
                               delta=0.2)


class ObserveTest(base.TestCase):

    def test_stock(self):
        now = replan.observe(progress.Progress(
            rounds=4, mbps=100.0, dirty_pages_per_s=10, remaining_bytes=5,
            pages=progress.PagePaths(peer=1, zero=2)), 3.0)
        self.assertEqual(replan.Observation(
            time=3.0, rounds=4, link_rate=12.5e6, dirty_rate=40960.0,
            remaining=5.0, sent=4096.0, zero=8192.0, active=False), now)

    def test_disks(self):
        """libvirt counts what remains of memory as well."""
        for remaining, data, expected in ((0, 700, 700), (200, 700, 500),
                                          (200, 200, 0), (200, 100, 0),
                                          (200, None, 0)):
            now = replan.observe(progress.Progress(
                remaining_bytes=remaining), 3.0, data)
            self.assertEqual(expected, now.disk_remaining)

    def test_postcopy(self):
        for status in progress.POSTCOPY:
            now = replan.observe(progress.Progress(status=status), 3.0)
            self.assertTrue(now.postcopy)
        now = replan.observe(progress.Progress(status='active'), 3.0)
        self.assertFalse(now.postcopy)

    def test_compression(self):
        """Pages that did not compress count, too."""
        source = statistics.SourceStatistics(
            state='active', compressed_pages=8, compressed_bytes=8 * 1024)
        now = replan.observe(progress.Progress(
            pages=progress.PagePaths(peer=10),
            dedup=statistics.DedupStatistics(source=source)), 3.0)
        self.assertEqual(0.4, now.share)

    def test_dedup(self):
        source = statistics.SourceStatistics(
            state='active', outstanding=3, peer_read_rate=7, peer_backlog=2,
            record_pages=12,
            storage_pages=9, nack_digest=1, nack_io=4, resent_pages=6)
        now = replan.observe(progress.Progress(
            dedup=statistics.DedupStatistics(source=source)), 3.0)
        self.assertEqual(replan.Observation(
            time=3.0, recorded=12 * 4096.0, outstanding=3 * 4096.0,
            storage_rate=7.0, backlog=2, fetched=9, nacks=5, resent=6), now)


class LeftTest(base.TestCase):
    """The time left agrees with the prediction, all the way."""

    def left(self, plan, given, **fields):
        fields.setdefault('link_rate', 12.5e6)
        fields.setdefault('active', plan.strategy != 'stock')
        return replan.replan(plan, given,
                             replan.Observation(**fields)).left

    def stock(self, **changes):
        given = cases.make(guest={'hint_pages': 0}, **changes)
        return choose.choose(given), given

    def test_stock_in_the_first_round(self):
        """4 GiB remain, but 1 GiB of them is zero."""
        plan, given = self.stock()
        whole = plan.prediction.time.likely
        self.assertAlmostEqual(
            whole, self.left(plan, given, time=0.1, rounds=1,
                             remaining=4.0 * cases.GIB), delta=3)
        # Half of both is done.
        half = self.left(plan, given, time=whole / 2, rounds=1,
                         remaining=2.0 * cases.GIB, sent=1.5 * cases.GIB,
                         zero=0.5 * cases.GIB)
        self.assertAlmostEqual(whole / 2, half, delta=5)

    def test_all_zero_pages_came_first(self):
        plan, given = self.stock()
        self.assertAlmostEqual(
            plan.prediction.time.likely,
            self.left(plan, given, time=1.0, rounds=1,
                      remaining=3.0 * cases.GIB, zero=1.1 * cases.GIB),
            delta=6)

    def test_dedup_in_the_first_round(self):
        given = cases.make()
        plan = choose.choose(given)
        self.assertEqual('shared_nas', plan.strategy)
        whole = plan.prediction.time.likely
        self.assertAlmostEqual(
            whole, self.left(plan, given, time=0.1, rounds=1,
                             remaining=4.0 * cases.GIB), delta=5)
        # All records are under way.
        self.assertAlmostEqual(
            whole, self.left(plan, given, time=1.0, rounds=1,
                             remaining=2.5 * cases.GIB,
                             recorded=1.5 * cases.GIB,
                             outstanding=1.5 * cases.GIB), delta=5)

    def test_records_are_no_longer_sent(self):
        given = cases.make()
        plan = choose.choose(given)
        self.assertAlmostEqual(
            plan.stock.time.likely, self.left(
                plan, given, time=0.1, rounds=1, active=False,
                remaining=4.0 * cases.GIB), delta=8)

    def test_later_rounds(self):
        plan, given = self.stock()
        self.assertAlmostEqual(8.0, self.left(
            plan, given, time=200.0, rounds=3, remaining=100e6), delta=0.5)

    def test_busy_guest_writes_to_its_working_set(self):
        """Little remains now, but no further round leaves less."""
        given = cases.make(guest={'hint_pages': 0},
                           options={'downtime_ms': 100})
        self.assertEqual(math.inf, self.left(
            choose.choose(given), given, time=200.0, rounds=30,
            dirty_rate=15e6, remaining=4e6))

    def busy(self):
        given = cases.make(guest={'hint_pages': 0, 'dirty_rate': 100e6},
                           options={'timeout': 1000.0})
        return choose.choose(given), given

    def test_postcopy(self):
        plan, given = self.busy()
        self.assertAlmostEqual(8.0, self.left(
            plan, given, time=200.0, rounds=3, remaining=100e6,
            dirty_rate=100e6, postcopy=True))

    def block(self):
        given = cases.make(
            guest={'hint_pages': 0}, options={'block_migration': True},
            disks=(cases.disk(copy='own', to_copy=10 * cases.GIB),))
        return choose.choose(given), given

    def test_disks_are_copied(self):
        """10 GiB at 12.5 MB/s, then 3 GiB of memory."""
        plan, given = self.block()
        memory = (plan.prediction.time.likely - plan.prediction.disk_time)
        self.assertAlmostEqual(258, memory, delta=15)
        for remaining in (10 * cases.GIB, cases.GIB):
            self.assertAlmostEqual(
                remaining / 12.5e6 + memory,
                self.left(plan, given, time=7.0, disk_remaining=remaining))

    def test_nothing_says_how_far_the_disks_are(self):
        plan, given = self.block()
        whole = plan.prediction.time.likely
        self.assertAlmostEqual(whole - 7, self.left(plan, given, time=7.0))
        self.assertAlmostEqual(
            whole - plan.prediction.disk_time,
            self.left(plan, given, time=5000.0))

    def test_memory_while_disks_change(self):
        plan, given = self.block()
        self.assertAlmostEqual(8 + 4, self.left(
            plan, given, time=900.0, rounds=2, remaining=100e6,
            disk_remaining=50e6), delta=0.5)


class ProgressTest(base.TestCase):

    def test_half(self):
        given = cases.make(guest={'hint_pages': 0})
        plan = choose.choose(given)
        share, left = replan.progress(plan, given, replan.Observation(
            time=8.0, rounds=2, link_rate=12.5e6, remaining=1e8,
            active=False))
        self.assertAlmostEqual(8.0, left, delta=0.5)
        self.assertAlmostEqual(0.5, share, delta=0.02)

    def test_it_does_not_end(self):
        given = cases.make(guest={'dirty_rate': 1e9, 'hint_pages': 0})
        plan = choose.choose(given)
        share, left = replan.progress(plan, given, replan.Observation(
            time=300.0, rounds=9, link_rate=12.5e6, dirty_rate=1e9,
            sent=3e9, remaining=1e9, active=False))
        self.assertEqual((0.75, math.inf), (share, left))

    def test_without_a_plan(self):
        """No more than what remains, and the rate."""
        now = replan.Observation(time=30.0, rounds=1, link_rate=1e7,
                                 remaining=6e8, disk_remaining=1e8)
        self.assertEqual((0.3, 70.0), replan.progress(None, None, now))

    def test_before_the_first_figures(self):
        self.assertEqual((0.0, math.inf), replan.progress(
            None, None, replan.Observation(time=0.0)))

    def test_end(self):
        given = cases.make(guest={'hint_pages': 0})
        share, left = replan.progress(
            choose.choose(given), given, replan.Observation(
                time=60.0, rounds=4, link_rate=1e8, active=False))
        self.assertLess(left, 0.1)
        self.assertGreater(share, 0.99)

    def test_hostile(self):
        given = cases.make()
        plan = choose.choose(given)
        for value in (math.nan, math.inf, -1.0, 2.0 ** 80):
            for one in (plan, None):
                for rounds in (0, 1, 2):
                    share, left = replan.progress(
                        one, given, replan.Observation(
                            time=value, rounds=rounds, link_rate=value,
                            remaining=value, disk_remaining=value,
                            sent=value, zero=value, recorded=value,
                            outstanding=value, storage_rate=value,
                            dirty_rate=value))
                    self.assertTrue(0 <= share <= 1, share)
                    self.assertGreaterEqual(left, 0)
