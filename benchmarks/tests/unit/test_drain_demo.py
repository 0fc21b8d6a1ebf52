# SPDX-License-Identifier: Apache-2.0
import testtools

from benchmarks import drain_demo
from benchmarks.drain_demo import AT_ONCE
from benchmarks.drain_demo import DRAIN
from benchmarks.drain_demo import KILLED
from benchmarks.drain_demo import LISTED
from benchmarks.drain_demo import Pass
from benchmarks.drain_demo import TWO


class TestRows(testtools.TestCase):

    def passes(self):
        names = ['drain-%d' % number for number in range(1, 7)]
        return {variant: Pass(
            variant, 'compute1', seconds, names,
            dict.fromkeys(names, 100), 10 ** 8,
            requests=dict.fromkeys(names, 1),
            predicted={'low': 50.0, 'likely': 60.0, 'high': 110.0})
            for variant, seconds in (
                (DRAIN, 70.0), (TWO, 50.0), (LISTED, 60.0), (AT_ONCE, 90.0),
                (KILLED, 140.0))}

    def failed(self, variant=None, **values):
        passes = self.passes()
        for name, value in values.items():
            setattr(passes[variant], name, value)
        return [row.name for row in drain_demo.rows_of(
            list(passes.values())) if not row.ok]

    def test_good(self):
        self.assertEqual([], self.failed())
        rows = {row.name: row.value for row in drain_demo.rows_of(
            list(self.passes().values()))}
        self.assertEqual(600, rows['drain: downtime, sum, mean of 1'])
        self.assertEqual(100, rows['drain: downtime, most, mean of 1'])
        self.assertEqual(1.7, rows['drain: longer than one after the '
                                   'other, for each server'])

    def test_each_is_checked(self):
        for variant, name, value, row in (
                (DRAIN, 'seconds', 109.0, 'drain: longer than one'),
                (DRAIN, 'predicted', {'low': 94.0, 'high': 99.0},
                 'drain, of compute1'),
                (TWO, 'predicted', {'low': 30.0, 'high': None},
                 'drain, two at a time, of compute1'),
                (AT_ONCE, 'wrong', ['x'], 'guests that have moved'),
                (KILLED, 'problems', ['x'], 'drains: disabled first'),
                (KILLED, 'requests', {'drain-1': 2},
                 'live migrations requested')):
            failed = self.failed(variant, **{name: value})
            self.assertEqual(1, len(failed), failed)
            self.assertTrue(failed[0].startswith(row), failed)
