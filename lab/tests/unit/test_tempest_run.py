# SPDX-License-Identifier: Apache-2.0
import unittest

from lab import tempest_run
from testkit import results

OUTPUT = '''\
{0} a.b.C.test_one[id-1,slow] [12.3s] ... ok
{1} a.b.C.test_two[id-2] [0.1s] ... FAILED
{0} setUpClass (a.b.D) ... SKIPPED: there are fewer than two compute hosts
{0} setUpClass (a.b.E) [0.0s] ... FAILED

Captured traceback:
    ... ok
'''


class TempestRunTest(unittest.TestCase):

    def test_parse(self):
        found = tempest_run.parse(OUTPUT)
        self.assertEqual(
            {'a.b.C.test_one': 'ok', 'a.b.C.test_two': 'FAILED',
             'setUpClass (a.b.D)': 'SKIPPED',
             'setUpClass (a.b.E)': 'FAILED'},
            {name: one.outcome for name, one in found.items()})
        self.assertEqual('there are fewer than two compute hosts',
                         found['setUpClass (a.b.D)'].reason)

    def judged(self, theirs, ours):
        found = results.Results('x')
        tempest_run.judge(theirs, ours, found)
        return {row.name: row.ok for row in found.rows}

    def test_a_fault_of_ours_is_one(self):
        ours = tempest_run.parse(OUTPUT)
        theirs = {**ours, 'a.b.C.test_two': tempest_run.Outcome('ok')}
        self.assertEqual(
            {"tests with Nova's driver": True, 'tests with our driver': True,
             'a.b.C.test_two': False, 'setUpClass (a.b.E)': True},
            self.judged(theirs, ours))

    def test_without_a_base_line_each_failure_counts(self):
        self.assertEqual(
            {'tests with our driver': True, 'a.b.C.test_two': False,
             'setUpClass (a.b.E)': False},
            self.judged(None, tempest_run.parse(OUTPUT)))

    def test_no_test_passed(self):
        self.assertEqual(
            {'tests with our driver': False},
            self.judged(None, {'a': tempest_run.Outcome('SKIPPED', 'x')}))
