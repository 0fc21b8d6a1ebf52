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
    time=10.0, link_rate=12.5e6, remaining=1e9, outstanding=5e8,
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
        self.assertIn('delivered 0 % of the pages', decision.reason)

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
        bare = replan.Observation(time=math.nan)
        decision = replan.replan(self.plan, self.facts, bare)
        self.assertEqual('keep', decision.action)
        self.assertLess(decision.left, 1)

    def test_timeout_counts_from_the_start(self):
        self.facts = cases.make(options={'timeout': 30.0})
        self.assertAlmostEqual(20, self._decide(dirty_rate=1e9).left,
                               delta=0.2)


class ObserveTest(base.TestCase):

    def test_stock(self):
        now = replan.observe(progress.Progress(
            mbps=100.0, dirty_pages_per_s=10, remaining_bytes=5), 3.0)
        self.assertEqual(replan.Observation(
            time=3.0, link_rate=12.5e6, dirty_rate=40960.0, remaining=5.0,
            active=False), now)

    def test_dedup(self):
        source = statistics.SourceStatistics(
            state='active', outstanding=3, peer_read_rate=7, peer_backlog=2,
            storage_pages=9, nack_digest=1, nack_io=4, resent_pages=6)
        now = replan.observe(progress.Progress(
            dedup=statistics.DedupStatistics(source=source)), 3.0)
        self.assertEqual(replan.Observation(
            time=3.0, outstanding=3 * 4096.0, storage_rate=7.0, backlog=2,
            fetched=9, nacks=5, resent=6), now)
