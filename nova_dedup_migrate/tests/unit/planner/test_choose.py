# SPDX-License-Identifier: Apache-2.0
import itertools
import math

from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases

_STOCK_QEMU = facts.End('compute2', False, '10.0.13', 'stock QEMU')


class ChooseTest(base.TestCase):

    def test_duplicates_are_left_out(self):
        made = choose.choose(cases.make())
        self.assertEqual(plan.SHARED_NAS, made.strategy)
        self.assertEqual('', made.reason)
        self.assertEqual(('shared', ()), (made.copy, made.disks))
        self.assertTrue(made.resend)
        self.assertLess(made.prediction.time.likely,
                        made.stock.time.likely)

    def test_stock_and_why(self):
        for changes, reason in (
                ({'options': {'strategy': 'off',
                              'strategy_source': 'flavor'}},
                 'switched off by flavor'),
                ({'options': {'strategy': 'teleport'}},
                 "strategy 'teleport' is not known"),
                ({'destination': _STOCK_QEMU},
                 'host compute2 cannot take part: stock QEMU'),
                ({'source': facts.End('compute1', False)},
                 'host compute1 cannot take part: its QEMU cannot'),
                ({'disks': ()}, 'the instance has no disks'),
                ({'disks': (cases.disk(copy='none',
                                       reason='another file'),)},
                 'cannot read any of the disks: another file'),
                ({'disks': (cases.disk(device=''),)},
                 'cannot read any of the disks'),
                ({'guest': {'hint_pages': 0}}, 'nothing is known yet'),
                ({'guest': {'hint_pages': 10000}},
                 'save 1 % of the time only, and min_gain is 5 %'),
                ({'link': {'configured': None, 'measured': 100e9}},
                 'would not be faster')):
            made = choose.choose(cases.make(**changes))
            self.assertEqual(plan.STOCK, made.strategy, changes)
            self.assertIn(reason, made.reason)
            self.assertEqual(made.stock, made.prediction)
            self.assertIn(made.reason[1:], made.explanation[-1])

    def test_strategies_that_are_not_built(self):
        for strategy in ('page_cache', 'snapshot'):
            made = choose.choose(cases.make(options={'strategy': strategy}))
            self.assertEqual(plan.SHARED_NAS, made.strategy)
            self.assertIn(strategy + ' is not available: ', made.reason)
            made = choose.choose(cases.make(options={'strategy': strategy},
                                            destination=_STOCK_QEMU))
            self.assertEqual(plan.STOCK, made.strategy)
            self.assertIn(strategy + ' is not available: ', made.reason)
            self.assertIn('stock QEMU', made.reason)

    def test_page_cache(self):
        for strategy in ('page_cache', 'auto'):
            made = choose.choose(cases.make(
                guest={'map_pages': 1000},
                options={'strategy': strategy}))
            self.assertEqual((plan.PAGE_CACHE, ''),
                             (made.strategy, made.reason))
            self.assertIn('Chosen: page_cache.', made.explanation[-1])
            self.assertIn('The guest has listed 4.1 MB of page cache.',
                          made.explanation)

    def test_page_cache_of_a_guest_that_says_nothing(self):
        made = choose.choose(cases.make(
            guest={'map_reason': 'it hangs'},
            options={'strategy': 'page_cache'}))
        self.assertEqual(plan.SHARED_NAS, made.strategy)
        self.assertEqual('page_cache is not available: it hangs',
                         made.reason)

    def test_asked_by_name_min_gain_does_not_count(self):
        made = choose.choose(cases.make(guest={'hint_pages': 10000},
                                        options={'strategy': 'shared_nas'}))
        self.assertEqual(plan.SHARED_NAS, made.strategy)

    def test_asked_by_name_but_slower(self):
        made = choose.choose(cases.make(
            link={'configured': None, 'measured': 100e9},
            options={'strategy': 'shared_nas'}))
        self.assertEqual(plan.STOCK, made.strategy)

    def test_neither_converges(self):
        """Then there is nothing to lose."""
        for timeout in (None, 3200.0):
            made = choose.choose(cases.make(guest={'dirty_rate': 1e9},
                                            options={'timeout': timeout}))
            self.assertEqual(plan.SHARED_NAS, made.strategy)
            self.assertFalse(made.stock.completes)
            self.assertIn('not expected to complete either',
                          made.explanation[-1])

    def test_disks_that_differ(self):
        made = choose.choose(cases.make(disks=(
            cases.disk(), cases.disk(device='b', target='vdb'),
            cases.disk(device='c', target='vdc', copy='own'),
            cases.disk(device='d', target='vdd', copy='none'),
            cases.disk(device='', target='vde', copy='none'))))
        self.assertEqual('shared', made.copy)
        self.assertEqual((plan.PlanDisk('c', 'own', True),
                          plan.PlanDisk('d', 'shared', False)), made.disks)

    def test_own_copies(self):
        made = choose.choose(cases.make(disks=(cases.disk(copy='own'),)))
        self.assertEqual(('own', ()), (made.copy, made.disks))

    def test_dead_storage_gains_nothing(self):
        made = choose.choose(cases.make(disks=(
            cases.disk(storage_rate=1.0),)))
        self.assertEqual(plan.STOCK, made.strategy)


class HostileTest(base.TestCase):
    """Whatever facts say, there is a plan, and it is not a bad one."""

    def test_single_facts(self):
        absurd = (None, 0, -1, 1, 2 ** 80, 10 ** 400, math.nan, math.inf,
                  -math.inf, 'x', True)
        for part, fields in (
                ('guest', ('memory', 'resident', 'hint_pages', 'dirty_rate',
                           'page_size', 'map_pages', 'disk_write_rate')),
                ('link', ('configured', 'measured', 'host_limit')),
                ('options', ('downtime_ms', 'downtime_steps', 'timeout',
                             'multifd_channels', 'min_gain', 'strategy'))):
            for field, value in itertools.product(fields, absurd):
                if field == 'downtime_steps':
                    value = ((value, value),)
                self._check(cases.make(**{part: {field: value}}))

    def test_disks(self):
        for field in ('size', 'to_copy', 'storage_rate'):
            for value in (None, 0, -1, 2 ** 80, math.nan, math.inf, 'x'):
                self._check(cases.make(
                    disks=(cases.disk(**{field: value}), cases.disk()),
                    options={'block_migration': True}))

    def test_all_at_once(self):
        for value in (None, 0, 2 ** 80, math.nan):
            self._check(cases.make(
                guest=dict.fromkeys(('memory', 'resident', 'hint_pages',
                                     'dirty_rate'), value),
                link=dict.fromkeys(('configured', 'measured'), value)))

    def _check(self, given):
        made = choose.choose(given)
        self.assertIn(made.strategy, (plan.STOCK, plan.SHARED_NAS,
                                      plan.PAGE_CACHE))
        self.assertTrue(all(isinstance(sentence, str)
                            for sentence in made.explanation))
        for prediction in (made.prediction, made.stock):
            for band in (prediction.bytes, prediction.time,
                         prediction.downtime):
                self.assertFalse(math.isnan(band.likely), given)
                self.assertGreaterEqual(band.low, 0, given)
        if made.strategy != plan.STOCK and made.stock.completes:
            self.assertLess(made.prediction.time.likely,
                            made.stock.time.likely, given)
