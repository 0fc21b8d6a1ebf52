# SPDX-License-Identifier: Apache-2.0
import re
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

    def named(self, **outcomes):
        """The outcomes of tests of the group servers."""
        return {'tempest.api.compute.servers.test_x.A.' + name:
                tempest_run.Outcome(outcome)
                for name, outcome in outcomes.items()}

    def test_a_fault_of_ours_is_one(self):
        theirs = self.named(a='ok', b='ok', c='FAILED')
        ours = self.named(a='FAILED', b='ok', c='FAILED')
        prefix = 'tempest.api.compute.servers.test_x.A.'
        self.assertEqual(
            {"servers, Nova's driver": True, 'servers, our driver': True,
             prefix + 'a': False, prefix + 'c': True},
            self.judged(theirs, ours))

    def test_without_a_base_line_each_failure_counts(self):
        found = self.judged(None, self.named(a='ok', c='FAILED'))
        self.assertEqual([True, False], list(found.values()))

    def test_no_test_passed(self):
        self.assertEqual({'servers, our driver': False},
                         self.judged(None, self.named(a='SKIPPED')))

    def test_table(self):
        text = tempest_run.show({
            'stock': self.named(a='ok', b='SKIPPED'),
            'dedup': {**self.named(a='ok', b='FAILED'),
                      'setUpClass (nova_dedup_migrate_tempest_plugin.x)':
                      tempest_run.Outcome('SKIPPED', 'x')}})
        self.assertEqual(
            [['servers', 'stock', '1', '0', '1'],
             ['plugin', 'dedup', '0', '0', '1'],
             ['servers', 'dedup', '1', '1', '0']],
            [line.split() for line in text.splitlines()[-3:]])

    def test_each_test_is_in_one_group(self):
        for name, group in (
                ('tempest.api.volume.test_volumes_get.A.test_b', 'volume'),
                ('tempest.api.compute.volumes.test_c.A.test_b', 'servers'),
                ('tempest.api.compute.admin.test_live_migration_negative.A'
                 '.test_b', 'live-migration'),
                ('nova_dedup_migrate_tempest_plugin.scenario.test_agents.A'
                 '.test_b', 'plugin')):
            self.assertEqual([group], [
                group for group, tests in tempest_run.GROUPS.items()
                if any(re.search(test, name) for test in tests)])
        self.assertTrue(set(tempest_run.QUICK) <= set(tempest_run.GROUPS))
