# SPDX-License-Identifier: Apache-2.0
"""Which candidate is chosen, given what is predicted of each."""

import dataclasses
from unittest import mock

from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import explain
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases


def _prediction(time, downtime=0.1, end='pre-copy'):
    return plan.Prediction(
        bytes=plan.Band(1e9, 1e9, 1e9), time=plan.Band(time, time, time),
        downtime=plan.Band(downtime, downtime, downtime), end=end)


class PredictedTest(base.TestCase):
    """Stock takes 100 s, and 0.1 s of downtime."""

    def choose(self, ours=None, both=None, compressed=None, stock=None,
               share=0.5, **changes):
        """Plan with predictions: of leaving out, of compressing the rest,
        and of compressing all."""
        predictions = {(False, False): stock or _prediction(100.0),
                       (True, False): ours or _prediction(200.0),
                       (True, True): both or _prediction(200.0),
                       (False, True): compressed or _prediction(200.0)}
        self.asked = []

        def fake(known, disks=(), most=None, threads=0):
            self.asked.append((bool(disks), most, threads))
            return predictions[bool(disks), bool(threads)]
        with mock.patch.object(predict, 'predict', fake):
            return choose.choose(cases.make(
                guest={'compressed_share': share,
                       **changes.pop('guest', {})}, **changes))

    def test_min_gain(self):
        for time, strategy in ((94.9, plan.SHARED_NAS), (95.1, plan.STOCK)):
            made = self.choose(_prediction(time))
            self.assertEqual(strategy, made.strategy, time)
        self.assertIn('leaving pages out would save only 5 % of the time',
                      made.reason)
        made = self.choose(compressed=_prediction(95.1), disks=())
        self.assertIn('compressing pages would save only 5 % of the time',
                      made.reason)

    def test_faster_at_all(self):
        """With a strategy that was set by name that is enough."""
        options = {'strategy': 'shared_nas'}
        for time, strategy in ((99.9, plan.SHARED_NAS), (100.0, plan.STOCK)):
            made = self.choose(_prediction(time), options=options)
            self.assertEqual(strategy, made.strategy, time)
        self.assertIn('leaving pages out would not be faster', made.reason)
        made = self.choose(compressed=_prediction(100.0),
                           options={'strategy': 'compress'})
        self.assertIn('compressing pages would not be faster', made.reason)

    def test_extra_downtime(self):
        made = self.choose(_prediction(50.0, 0.5), options={
            'max_extra_downtime_ms': 250}, stock=_prediction(100.0, 0.25))
        self.assertEqual(plan.SHARED_NAS, made.strategy)
        for downtime, strategy in ((0.14999, plan.SHARED_NAS),
                                   (0.15003, plan.STOCK),
                                   (0.151, plan.STOCK)):
            made = self.choose(_prediction(50.0, downtime))
            self.assertEqual(strategy, made.strategy, downtime)
        self.assertIn('leaving pages out would stop the guest for 151 ms, '
                      'an ordinary migration for 100 ms; max_extra_downtime '
                      'permits 50 ms more', made.reason)
        made = self.choose(compressed=_prediction(50.0, 0.151), disks=())
        self.assertIn('compressing pages would stop the guest for 151 ms',
                      made.reason)

    def test_stock_does_not_complete(self):
        """Then there is nothing to lose, whatever the downtime."""
        made = self.choose(_prediction(90.0, 9.0),
                           stock=_prediction(60.0, 0.1, 'aborted'))
        self.assertEqual(plan.SHARED_NAS, made.strategy)
        self.assertIn('An ordinary migration is not expected to complete.',
                      made.explanation[-1])

    def test_compression_has_to_be_worth_it(self):
        """2 % more; if it was asked for, it must not be slower."""
        for time, compression, threads in (
                (48.9, 'auto', 1), (49.1, 'auto', 0), (50.0, 'auto', 0),
                (50.0, 'zstd', 1), (50.1, 'zstd', 0)):
            made = self.choose(_prediction(50.0), _prediction(time),
                               options={'compression': compression})
            self.assertEqual((plan.SHARED_NAS, threads),
                             (made.strategy, made.compression_threads), time)

    def test_compression_alone(self):
        """It needs less, so it is chosen if leaving out gains little."""
        made = self.choose(_prediction(60.0), _prediction(50.0),
                           _prediction(40.0))
        self.assertEqual((plan.COMPRESS, 1),
                         (made.strategy, made.compression_threads))
        self.assertEqual((), made.disks)
        made = self.choose(_prediction(60.0), _prediction(50.0),
                           _prediction(49.5))
        self.assertEqual(plan.SHARED_NAS, made.strategy)
        # a strategy that was set by name is not replaced
        made = self.choose(_prediction(60.0), _prediction(50.0),
                           _prediction(40.0),
                           options={'strategy': 'shared_nas'})
        self.assertEqual((plan.SHARED_NAS, 1),
                         (made.strategy, made.compression_threads))

    def test_asked_for_compression_of_all(self):
        """zstd makes no difference between strategies."""
        made = self.choose(_prediction(50.0), _prediction(60.0),
                           _prediction(49.5), options={'compression': 'zstd'})
        self.assertEqual((plan.SHARED_NAS, 0),
                         (made.strategy, made.compression_threads))

    def test_memory_that_compresses(self):
        for share, threads in ((0.849, 1), (0.85, 0)):
            made = self.choose(_prediction(50.0), _prediction(20.0),
                               share=share)
            self.assertEqual(threads, made.compression_threads, share)

    def test_downtime_limits(self):
        """With the limit that keeps to stock's downtime, then without."""
        self.choose(_prediction(50.0), share=None)
        self.assertEqual([(False, None, 0), (True, 150.0, 0),
                          (True, None, 0)], self.asked)
        self.choose(_prediction(50.0), share=None,
                    options={'downtime_ms': 120})
        self.assertEqual((True, 120, 0), self.asked[1])
        self.choose(_prediction(50.0), share=None,
                    stock=_prediction(60.0, 0.1, 'aborted'))
        self.assertEqual((True, 500, 0), self.asked[1])
        self.choose(_prediction(50.0), share=None,
                    options={'adapt_downtime_limit': False})
        self.assertEqual([(False, None, 0), (True, None, 0)], self.asked)

    def test_downtime_limit_of_stock(self):
        for options, limit in (({}, 500), ({'strategy': 'off'}, None),
                               ({'adapt_downtime_limit': False}, None)):
            self.assertEqual(limit, self.choose(
                options=options).max_downtime_limit_ms, options)

    def test_fetch_rate(self):
        for options, rate, expected in (
                ({}, 1e8, 0), ({'fetch_share': 0.9}, 1e8, 90000000),
                ({'fetch_share': 0.9}, None, 0),
                ({'fetch_share': 0.9, 'fetch_rate': 5}, 1e8, 5)):
            made = self.choose(_prediction(50.0), options=options,
                               disks=(cases.disk(storage_rate=rate),))
            self.assertEqual(expected, made.fetch_rate, (options, rate))

    def test_what_was_rejected_is_explained(self):
        """The candidate that needs the least."""
        made = self.choose()
        self.assertEqual('Chosen: an ordinary migration. Leaving pages out '
                         'would not be faster.', made.explanation[-1])
        text = ' '.join(made.explanation)
        self.assertIn('Disk vda: both hosts open it;', text)
        self.assertIn('Leaving out 1.6 GB', text)
        self.assertNotIn('ompressing', text)

    def test_options_of_fetches(self):
        made = self.choose(_prediction(50.0), options={
            'fetch_iops': 7, 'fetch_in_postcopy': True,
            'defer_redirtied_pages': True})
        self.assertEqual((7, True, True), (
            made.fetch_iops, made.fetch_in_postcopy,
            made.defer_redirtied_pages))

    def test_most_disks_decide_what_is_the_exception(self):
        own = [cases.disk(device=name, copy=facts.OWN) for name in 'ab']
        made = self.choose(_prediction(50.0),
                           disks=(cases.disk(device='c'), *own))
        self.assertEqual((facts.OWN, (plan.PlanDisk('c', 'shared', True),)),
                         (made.copy, made.disks))


class ExplainTest(base.TestCase):

    def text(self, threads=0, disks=None, **changes):
        known = cases.make(disks=disks, **changes)
        return explain.explain(known, known.disks, _prediction(100.0),
                               _prediction(50.0), 'Chosen.', threads)

    def test_page_cache_and_index(self):
        text = self.text(guest={'map_pages': 3000, 'index_pages': 1000})
        self.assertIn('The guest has listed 8.2 MB of page cache.', text)
        self.assertIn('4.1 MB of its memory was found on its disks.', text)
        text = ' '.join(self.text(guest={'map_pages': 1, 'index_pages': 1}))
        self.assertNotIn('has listed', text)
        self.assertIn('4.1 kB of its memory was found', text)

    def test_threads(self):
        for threads, disks, expected in (
                (1, (), 'Compressing what is sent with 1 thread: 50 s'),
                (2, (), 'Compressing what is sent with 2 threads: 50 s'),
                (1, None, 'reads from storage and compressing the rest with '
                 '1 thread: 50 s')):
            self.assertIn(expected, ' '.join(self.text(threads, disks)))
        self.assertNotIn('ompressing', ' '.join(self.text()))

    def test_sample_of_what_compresses(self):
        self.assertIn('not on disk compresses to 40 %.', ' '.join(
            self.text(guest={'compressed_share': 0.4})))
        self.assertNotIn('compresses', ' '.join(self.text()))

    def test_memory(self):
        text = ' '.join(self.text(guest={'in_use': 1e9,
                                         'hint_pages': 10 ** 9}))
        # no more hints than memory in use
        self.assertIn('uses 1 GB of its 4.3 GB of memory; 1 GB of that',
                      text)

    def test_link(self):
        for link, expected in (
                ({'sharers': 1}, 'shared with another migration)'),
                ({'sharers': 2}, 'shared with 2 other migrations)'),
                ({'configured': None, 'host_limit': 1e9},
                 '(measured, link_bandwidth).')):
            self.assertIn(expected, ' '.join(self.text(link=link)))
        self.assertNotIn('shared', ' '.join(self.text()[:4]))

    def test_disks(self):
        """Eight are listed."""
        for number, more in ((8, False), (9, True)):
            text = self.text(disks=(cases.disk(),) * number)
            self.assertEqual(more, 'And 1 more disks.' in text)
            self.assertEqual(8, sum(one.startswith('Disk vda')
                                    for one in text))
        self.assertIn('Disk vda is not used: the destination does not have '
                      'its bytes.', self.text_without(cases.disk()))

    def text_without(self, disk):
        return explain.explain(cases.make(disks=(disk,)), (),
                               _prediction(100.0), None, 'Chosen.')

    def test_end_is_said_once(self):
        known = cases.make()
        busy = _prediction(100.0, end='post-copy')
        for prediction, times in ((busy, 1), (_prediction(50.0), 1), (
                dataclasses.replace(busy, end='forced'), 2)):
            text = explain.explain(known, known.disks, busy, prediction, '.')
            self.assertEqual(times, sum(
                'too fast' in sentence for sentence in text))

    def test_chosen(self):
        good, bad = _prediction(50.0), _prediction(50.0, end='never')
        for args, expected in (
                ((plan.SHARED_NAS, 0.5, good, good),
                 'Chosen: shared_nas. It is expected to save 50 % of the '
                 'time.'),
                ((plan.SHARED_NAS, 1.0, bad, good, 1),
                 'Chosen: shared_nas with compression. An ordinary '
                 'migration is not expected to complete.'),
                ((plan.COMPRESS, 1.0, bad, bad, 1),
                 'Chosen: compress. An ordinary migration is not expected '
                 'to complete either, and this one has less to send.')):
            self.assertEqual(expected, explain.chosen(*args))


class AskingTest(base.TestCase):

    def reason(self, saved, ask):
        """The best saves so many seconds of what is without a list."""
        with mock.patch.object(predict, 'predict', side_effect=[
                _prediction(10.0), _prediction(100.0),
                _prediction(10.0 + saved)]):
            return ask(cases.make(guest={'hint_pages': 0}))

    def test_cost_of_a_list(self):
        """0.3 s, and 0.25 s a GB: 3.22 GB are in use; or its limit."""
        for limit, saved, expected in (
                (5.0, 1.105, 'it takes longer than it could save'),
                (5.0, 1.106, ''), (-0.71, 0.91, '')):
            self.assertEqual(expected, self.reason(
                saved, lambda given, limit=limit:
                asking.obstacle(given, limit)))

    def test_cost_of_an_index(self):
        """Reading 20 GiB, but no longer than is waited for it."""
        for rate, limit, cost in ((1 << 30, 60.0, 20.0), (0, 60.0, 60.0),
                                  (1 << 20, 60.0, 60.0)):
            for more, expected in ((-0.01, False), (0.01, True)):
                self.assertEqual(expected, not self.reason(
                    cost + more, lambda given, rate=rate, limit=limit:
                    asking.index_obstacle(given, 'auto', rate, limit)))

    def test_min_gain(self):
        """The best saves 90 % of stock's time."""
        for least, expected in ((0.899, False), (0.901, True)):
            with mock.patch.object(predict, 'predict', side_effect=[
                    _prediction(10.0), _prediction(100.0),
                    _prediction(100.0)]):
                self.assertEqual(expected, 'min_gain' in asking.obstacle(
                    cases.make(options={'min_gain': least}), 5.0))

    def test_an_ordinary_one_is_as_fast(self):
        for best, expected in ((100.0, True), (99.9, False)):
            with mock.patch.object(predict, 'predict', side_effect=[
                    _prediction(best), _prediction(100.0)]):
                self.assertEqual(expected, 'is faster' in asking.obstacle(
                    cases.make(options={'strategy': 'page_cache'}), 5.0))

    def test_hints_that_suffice(self):
        """A quarter of the memory in use."""
        for in_use in None, 2.0 * cases.GIB:
            quarter = int((in_use or 3 * cases.GIB) // 4 // 4096)
            for pages, expected in ((quarter, True), (quarter - 1, False)):
                self.assertEqual(expected, 'suffice' in asking.index_obstacle(
                    cases.make(guest={'hint_pages': pages,
                                      'in_use': in_use}),
                    'auto', 0, 1.0), pages)

    def test_again(self):
        for age, seconds, left, expected in (
                (30, 0.0, None, True), (29.9, 0.0, None, False),
                (40, 2.0, None, True), (39.9, 2.0, None, False),
                (30, 0.0, 30.0, False), (30, 0.0, 30.1, True)):
            self.assertEqual(expected, asking.again(age, seconds, left),
                             (age, seconds, left))
