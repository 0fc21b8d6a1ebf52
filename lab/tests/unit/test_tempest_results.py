# SPDX-License-Identifier: Apache-2.0
import unittest

from lab import tempest_results
from testkit import results

OUTPUT = '''\
{0} a.b.C.test_one[id-1,slow] [12.3s] ... ok
{1} a.b.C.test_two[id-2] [0.1s] ... FAILED
{0} setUpClass (a.b.D) ... SKIPPED: there are fewer than two compute hosts
{0} setUpClass (a.b.E) [0.0s] ... FAILED

Captured traceback:
    ... ok
'''
STOCK = tempest_results.Run('stock', 1)
OURS = tempest_results.Run('dedup', 1)
AT_ONCE = tempest_results.Run('dedup', 2)
PREFIX = 'tempest.api.compute.servers.test_x.A.'
PLUGIN = 'nova_dedup_migrate_tempest_plugin.scenario.test_x.A.'


def named(prefix=PREFIX, **outcomes):
    """Return the outcomes of tests, by default of the group servers."""
    return {prefix + name: tempest_results.Outcome(outcome)
            for name, outcome in outcomes.items()}


class TempestResultsTest(unittest.TestCase):

    def test_parse(self):
        found = tempest_results.parse(OUTPUT)
        self.assertEqual(
            {'a.b.C.test_one': 'ok', 'a.b.C.test_two': 'FAILED',
             'setUpClass (a.b.D)': 'SKIPPED',
             'setUpClass (a.b.E)': 'FAILED'},
            {name: one.outcome for name, one in found.items()})
        self.assertEqual('there are fewer than two compute hosts',
                         found['setUpClass (a.b.D)'].reason)

    def test_parse_what_was_broken_off(self):
        end = OUTPUT.index('[0.1s]')
        self.assertEqual(['a.b.C.test_one'],
                         list(tempest_results.parse(OUTPUT[:end])))

    def judged(self, outcomes):
        found = results.Results('x')
        tempest_results.judge(outcomes, found)
        return {row.name: (row.value, row.ok) for row in found.rows}

    def test_a_fault_of_ours_is_one(self):
        self.assertEqual(
            {"servers, Nova's driver, one at a time":
                 ('2 passed, 1 failed, 0 skipped', True),
             'servers, our driver, one at a time':
                 ('1 passed, 2 failed, 0 skipped', True),
             PREFIX + 'a, our driver, one at a time':
                 ("fails, passes with Nova's", False),
             PREFIX + 'c, our driver, one at a time':
                 ("fails, also with Nova's", True),
             "fails with our driver, one at a time and not with Nova's":
                 (1, False)},
            self.judged({
                STOCK: named(a='ok', b='ok', c='FAILED'),
                OURS: named(a='FAILED', b='ok', c='FAILED')}))

    def test_a_fault_of_several_at_a_time(self):
        found = self.judged({
            STOCK: named(a='ok', b='ok'), OURS: named(a='ok', b='ok'),
            AT_ONCE: named(a='FAILED', b='ok')})
        self.assertEqual([True, True, True, True, False, False],
                         [ok for _, ok in found.values()])
        self.assertEqual([PREFIX + 'a, our driver, 2 at a time'], [
            name for name, (value, _) in found.items()
            if str(value).startswith('fails')])

    def test_what_is_skipped_with_ours_alone(self):
        found = self.judged({STOCK: named(a='ok', b='SKIPPED'),
                             OURS: named(a='SKIPPED', b='SKIPPED', c='ok')})
        self.assertEqual(("is skipped, passes with Nova's", False),
                         found[PREFIX + 'a, our driver, one at a time'])
        self.assertNotIn(PREFIX + 'b, our driver, one at a time', found)

    def test_our_own_tests_fail_with_our_driver_alone(self):
        found = self.judged({STOCK: named(a='ok'),
                             OURS: {**named(a='ok'),
                                    **named(PLUGIN, a='FAILED')}})
        self.assertEqual(
            ('fails', False), found[PLUGIN + 'a, our driver, one at a time'])
        self.assertEqual((0, True), found[
            "fails with our driver, one at a time and not with Nova's"])

    def test_without_a_base_line_each_failure_counts(self):
        found = self.judged({OURS: named(a='ok', c='FAILED')})
        self.assertEqual([True, False], [ok for _, ok in found.values()])

    def test_no_test_passed(self):
        self.assertEqual(
            {'servers, our driver, one at a time':
                 ('0 passed, 0 failed, 1 skipped', False)},
            self.judged({OURS: named(a='SKIPPED')}))

    def test_nothing_ran(self):
        self.assertEqual({}, self.judged({}))

    def test_table(self):
        text = tempest_results.show({
            STOCK: named(a='ok', b='SKIPPED'),
            AT_ONCE: {**named(a='ok', b='FAILED'),
                      'setUpClass (%sx)' % PLUGIN:
                      tempest_results.Outcome('SKIPPED', 'x')}})
        self.assertEqual(
            [['servers', 'stock', '1', '1', '0', '1'],
             ['plugin', 'dedup', '2', '0', '0', '1'],
             ['servers', 'dedup', '2', '1', '1', '0']],
            [line.split() for line in text.splitlines()[-3:]])

    def test_what_is_skipped_has_its_reason(self):
        lines = tempest_results.skipped({
            run: {'a': tempest_results.Outcome('SKIPPED', 'why'),
                  'b': tempest_results.Outcome('ok')}
            for run in (STOCK, OURS)})
        self.assertEqual('skipped: a: why', lines[0])
        self.assertTrue(all(line.startswith('left out: ')
                            for line in lines[1:]))
