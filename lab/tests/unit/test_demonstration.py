# SPDX-License-Identifier: Apache-2.0
import dataclasses

from lab import demonstration
from lab import migrations
from nova_dedup_migrate.tests import base
from testkit import results


def outcome(kind, sent, page_cache=None, **values):
    return migrations.Outcome(
        kind, 'compute1', 'compute2', 1.0, sent, 1, 1 << 28, 0, 'uuid',
        page_cache=page_cache, **values)


class TestShow(base.TestCase):

    ANSWER = {'outcome': 'partial', 'reason': 'it broke off', 'seconds': 0.5,
              'listed_pages': 1234, 'taken_pages': 1233}

    def test_kinds_are_compared_with_stock(self):
        text = demonstration.show([
            outcome('stock', 200), outcome('dedup', 100),
            outcome('page_cache', 50)])
        self.assertIn('dedup took 100 % of the time of stock and sent 50 %',
                      text)
        self.assertIn('page_cache took 100 % of the time of stock and sent '
                      '25 %', text)
        self.assertNotIn('listed', text)

    def test_what_a_guest_said_is_shown(self):
        text = demonstration.show([outcome(
            'page_cache', 50, self.ANSWER,
            pages={'peer': 11, 'zero': 22, 'storage': 33})])
        row = next(line for line in text.splitlines() if '1234' in line)
        self.assertEqual(
            ['page_cache', 'compute1', 'partial', '0.50', '1234', '1233',
             '11', '22', '33'], row.split())
        self.assertIn('page_cache from compute1: it broke off', text)

    def test_a_guest_that_was_not_asked_has_no_row(self):
        text = demonstration.show([outcome(
            'dedup', 50, {**self.ANSWER, 'outcome': 'skipped'})])
        self.assertNotIn('listed', text)


    def test_spreads_and_predictions(self):
        text = demonstration.show([
            outcome('stock', 2e6), outcome('dedup', 1e6, prediction_error={
                'time_percent': -4.04, 'bytes_percent': 2}),
            outcome('stock', 4e6), outcome('dedup', 1e6)])
        stock, dedup = (
            next(line for line in text.splitlines()
                 if line.startswith(kind) and '(' in line).split()
            for kind in ('stock', 'dedup'))
        self.assertEqual('3.0 (2.0 to 4.0)', ' '.join(stock[6:10]))
        self.assertEqual(['-', '-'], stock[-2:])
        self.assertEqual(['-4.0', '2.0'], dedup[-2:])


class TestJudge(base.TestCase):

    def status(self, **values):
        found = results.Results('x')
        demonstration.judge([outcome('stock', 2e6), outcome('dedup', 1e6),
                             outcome('dedup', 3e6, **values)], found)
        rows = {row.name: row.value for row in found.rows}
        self.assertEqual((1, 2, 2.0), (rows['stock: migrations'],
                                       rows['dedup: migrations'],
                                       rows['dedup: sent on the link']))
        return found.status()

    def test_wrong_pages_and_disks(self):
        self.assertEqual(0, self.status())
        self.assertEqual(1, self.status(differing=('block 7',)))
        found = results.Results('x')
        demonstration.judge([dataclasses.replace(outcome('stock', 1),
                                                 errors=1)], found)
        self.assertEqual(1, found.status())


class TestOutcome(base.TestCase):

    def test_what_disks_took_is_the_rest(self):
        self.assertIsNone(outcome('stock', 100).disk_bytes)
        self.assertEqual(30, outcome('dedup', 100,
                                     memory_bytes=70).disk_bytes)
        self.assertEqual(0, outcome('dedup', 100,
                                    memory_bytes=101).disk_bytes)
