# SPDX-License-Identifier: Apache-2.0
import dataclasses
import itertools
import math
from unittest import mock

from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import predict
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
                 'strategy off is set in flavor'),
                ({'options': {'strategy': 'teleport'}},
                 "strategy 'teleport' is unknown; valid are auto, "),
                ({'destination': _STOCK_QEMU},
                 'host compute2 cannot leave pages out: stock QEMU'),
                ({'source': facts.End('compute1', False)},
                 'host compute1 cannot leave pages out: its QEMU is not'),
                ({'disks': ()}, 'the instance has no disks'),
                ({'disks': (cases.disk(copy='none',
                                       reason='another file'),)},
                 'host compute2 cannot read any of the disks: another file'),
                ({'disks': (cases.disk(device=''),)},
                 'cannot read any of the disks'),
                ({'guest': {'hint_pages': 0}}, 'check track_io and the log'),
                ({'guest': {'hint_pages': 10000}},
                 'save only 1 % of the time; min_gain is 5 %'),
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


class DowntimeTest(base.TestCase):

    def busy(self, hints=100, **options):
        """100 MB, much of which changes; Nova's limit rises after 17 s."""
        return cases.make(
            guest={'memory': 256 << 20, 'resident': 256 << 20,
                   'in_use': 100e6, 'dirty_rate': 11e6,
                   'hint_pages': hints},
            options={'downtime_ms': 500, 'max_extra_downtime_ms': 500,
                     'downtime_steps': ((0, 50), (17.6, 500)), **options})

    def test_a_few_hints_do_not_win_by_the_limit(self):
        """With it on one side only, 400 KB "saved" 18 -> 15.6 s."""
        plain = choose.choose(self.busy(adapt_downtime_limit=False))
        adapted = choose.choose(self.busy())
        self.assertAlmostEqual(18.2, plain.stock.time.likely, delta=0.1)
        self.assertAlmostEqual(15.6, adapted.stock.time.likely, delta=0.1)
        for made in plain, adapted:
            self.assertEqual(plan.STOCK, made.strategy)
            self.assertIn('save only 0 % of the time', made.reason)

    def test_max_extra_downtime_bounds_the_limit(self):
        """Then the limit does not reach what a round leaves."""
        plain = choose.choose(self.busy(adapt_downtime_limit=False))
        adapted = choose.choose(self.busy(max_extra_downtime_ms=50))
        self.assertAlmostEqual(plain.stock.time.likely,
                               adapted.stock.time.likely, delta=0.1)
        self.assertLessEqual(
            adapted.stock.downtime.likely,
            plain.stock.downtime.likely + 0.05)

    def longer(self, extra=50, **options):
        """All is on storage, so pre-copy ends; stock ends in post-copy."""
        return choose.choose(cases.make(
            guest={'dirty_rate': 13e6, 'disk_write_rate': 11e6},
            link={'measured': 11e6},
            options={'postcopy': True, 'downtime_ms': 2000,
                     'max_extra_downtime_ms': extra, **options}))

    def test_a_plan_that_stops_the_guest_for_longer(self):
        made = self.longer()
        self.assertEqual(plan.STOCK, made.strategy)
        self.assertRegex(
            made.reason, r'leaving pages out would stop the guest for \d+ '
            r'ms, an ordinary migration for 20 ms; max_extra_downtime '
            r'permits 50 ms more')
        made = self.longer(extra=5000)
        self.assertEqual(plan.SHARED_NAS, made.strategy)
        self.assertLessEqual(made.prediction.downtime.likely,
                             made.stock.downtime.likely + 5.0)

    def test_by_name_it_counts_too(self):
        made = self.longer(strategy='shared_nas')
        self.assertEqual(plan.STOCK, made.strategy)

    def test_another_plan_without_the_limit(self):
        """If raising the limit is what takes too long, it is left."""
        real = predict.predict

        def longer(known, disks=(), *args, **given):
            made = real(known, disks, *args, **given)
            if disks and known.options.adapt_downtime_limit:
                return dataclasses.replace(
                    made, downtime=plan.Band(9.0, 9.0, 9.0))
            return made
        with mock.patch.object(predict, 'predict', longer):
            made = choose.choose(cases.make())
        self.assertEqual(plan.SHARED_NAS, made.strategy)
        self.assertIsNone(made.max_downtime_limit_ms)
        self.assertLess(made.prediction.downtime.likely, 1.0)


class HintsTest(base.TestCase):
    """A large data disk that is not shared, a hot root disk that is."""

    def disks(self, root, data, **changes):
        return (cases.disk(size=10 * cases.GIB, hint_pages=root, **changes),
                cases.disk(device='b', target='vdb', copy='none',
                           size=1000 * cases.GIB, hint_pages=data))

    def test_by_size_it_is_hidden(self):
        made = choose.choose(cases.make(disks=self.disks(None, None)))
        self.assertEqual(plan.STOCK, made.strategy)

    def test_by_disk_it_is_not(self):
        half = 3 * cases.GIB // 2 // 4096
        made = choose.choose(cases.make(disks=self.disks(half, 0)))
        self.assertEqual(plan.SHARED_NAS, made.strategy)
        self.assertAlmostEqual(
            choose.choose(cases.make()).prediction.time.likely,
            made.prediction.time.likely)
        self.assertIn('1.6 GB of memory are from it',
                      ' '.join(made.explanation))

    def test_all_hints_are_of_the_other_disk(self):
        made = choose.choose(cases.make(disks=self.disks(0, 10 ** 6)))
        self.assertEqual(plan.STOCK, made.strategy)
        self.assertIn('memory holds no content of the disks that host '
                      'compute2 can read', made.reason)

    def test_what_the_guest_lists_is_not_counted_by_disk(self):
        made = choose.choose(cases.make(
            guest={'map_pages': 3 * cases.GIB // 2 // 4096},
            disks=self.disks(0, 0)))
        self.assertEqual(plan.PAGE_CACHE, made.strategy)

    def test_stale_hints(self):
        """Nine of ten pages have changed since."""
        half = 3 * cases.GIB // 2 // 4096
        good, bad = (choose.choose(cases.make(disks=self.disks(
            half, 0, valid_share=share))) for share in (1.0, 0.1))
        self.assertLess(good.prediction.storage_bytes * 0.09,
                        bad.prediction.storage_bytes)
        self.assertGreater(good.prediction.storage_bytes * 0.11,
                           bad.prediction.storage_bytes)


class HostileTest(base.TestCase):
    """Whatever facts say, there is a plan, and it is not a bad one."""

    def test_single_facts(self):
        absurd = (None, 0, -1, 1, 2 ** 80, 10 ** 400, math.nan, math.inf,
                  -math.inf, 'x', True)
        for part, fields in (
                ('guest', ('memory', 'resident', 'hint_pages', 'dirty_rate',
                           'page_size', 'map_pages', 'disk_write_rate',
                           'valid_share')),
                ('link', ('configured', 'measured', 'host_limit',
                          'sharers')),
                ('options', ('downtime_ms', 'downtime_steps', 'timeout',
                             'multifd_channels', 'min_gain', 'strategy',
                             'max_extra_downtime_ms'))):
            for field, value in itertools.product(fields, absurd):
                if field == 'downtime_steps':
                    value = ((value, value),)
                self._check(cases.make(**{part: {field: value}}))

    def test_disks(self):
        for field in ('size', 'to_copy', 'storage_rate', 'scattered_rate',
                      'hint_pages', 'valid_share'):
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


class CompressionTest(base.TestCase):

    def choose(self, share=0.2, disks=None, link=(), options=(), idle=2.0,
               idle_there=None, **guest):
        known = cases.make(
            guest={'compressed_share': share, **guest}, disks=disks,
            link=link, options=options)
        return choose.choose(dataclasses.replace(
            known,
            source=dataclasses.replace(known.source, processors=idle),
            destination=dataclasses.replace(known.destination,
                                            processors=idle_there)))

    def test_a_busy_destination(self):
        fast = {'configured': 3e8, 'measured': 3e8}
        free, busy = (self.choose(link=fast, idle_there=idle).prediction.time
                      for idle in (2.0, 0.0))
        self.assertGreater(busy.likely, 1.3 * free.likely)

    def test_beside_records(self):
        made = self.choose()
        plain = self.choose(options={'compression': 'off'})
        self.assertEqual(plan.SHARED_NAS, made.strategy)
        self.assertEqual(2, made.compression_threads)
        self.assertEqual(0, plain.compression_threads)
        self.assertLess(made.prediction.time.likely,
                        0.5 * plain.prediction.time.likely)
        self.assertLess(made.prediction.bytes.likely,
                        0.3 * plain.prediction.bytes.likely)
        self.assertIn('compressing the rest with 2 threads',
                      ' '.join(made.explanation))
        self.assertIn('with compression', made.explanation[-1])

    def test_nothing_to_leave_out(self):
        made = self.choose(disks=(), hint_pages=0)
        self.assertEqual(plan.COMPRESS, made.strategy)
        self.assertEqual((), made.disks)
        self.assertLess(made.prediction.time.likely,
                        0.3 * made.stock.time.likely)

    def test_strategy_compress(self):
        made = self.choose(options={'strategy': 'compress'})
        self.assertEqual(plan.COMPRESS, made.strategy)
        self.assertEqual(0.0, made.prediction.storage_bytes)
        made = self.choose(options={'strategy': 'compress',
                                    'compression': 'off',
                                    'compression_source': 'flavor'})
        self.assertEqual(plan.STOCK, made.strategy)
        self.assertIn('compression off is set in flavor', made.reason)

    def test_not_known(self):
        made = self.choose(share=None)
        self.assertEqual(plan.SHARED_NAS, made.strategy)
        self.assertEqual(0, made.compression_threads)
        made = self.choose(share=None, options={'strategy': 'compress'})
        self.assertEqual(plan.STOCK, made.strategy)
        self.assertIn('how well the memory compresses', made.reason)

    def test_does_not_compress(self):
        self.assertEqual(0, self.choose(share=0.9).compression_threads)

    def test_link_that_is_faster(self):
        fast = {'configured': None, 'measured': 2e10}
        made = self.choose(link=fast, options={'strategy': 'compress'})
        stock = predict.predict(cases.make(link=fast))
        self.assertLessEqual(made.prediction.time.likely,
                             stock.time.likely)
        made = self.choose(link=fast, disks=(), idle=0.0)
        self.assertLessEqual(made.prediction.time.likely,
                             stock.time.likely)

    def test_never_slower(self):
        for rate in 1e6, 1e8, 1e9, 4e9, 2e10:
            for compression in 'auto', 'zstd':
                for share in 0.05, 0.2, 0.6, 0.84:
                    made = self.choose(
                        share=share, options={'compression': compression},
                        link={'configured': None, 'measured': rate})
                    plain = self.choose(
                        options={'compression': 'off'},
                        link={'configured': None, 'measured': rate})
                    self.assertLessEqual(made.prediction.time.likely,
                                         plain.prediction.time.likely)

    def test_busy_source(self):
        """One thread that gets what a processor has left."""
        made = self.choose(idle=0.0)
        self.assertEqual(1, made.compression_threads)

    def test_nonsense(self):
        for share in -1, 7, 'x', float('nan'):
            made = self.choose(share=share, idle=float('nan'))
            self.assertIn(made.strategy, (plan.SHARED_NAS, plan.COMPRESS))
