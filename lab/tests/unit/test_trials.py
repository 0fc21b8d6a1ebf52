# SPDX-License-Identifier: Apache-2.0
from lab import fault_campaign
from lab import faults
from lab import settings
from lab import trials
from nova_dedup_migrate.tests import base
from testkit import results

_ALL = ('before', 'during', 'end')


class TestLedger(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.path = self.directory / 'local.jsonl'
        self.ledger = self.again()

    def again(self):
        return trials.Ledger('local', self.directory)

    def test_nothing_was_tried(self):
        self.assertEqual([], self.ledger.trials())
        self.assertEqual([('a', 'end')],
                         self.ledger.missing([('a', 'end')], 1))

    def test_trials_are_kept(self):
        trial = trials.Trial('a', 'end', 'local', problems=['lost'])
        self.ledger.add(trial)
        self.assertEqual([trial], self.again().trials())

    def test_a_line_that_was_cut_off(self):
        self.ledger.add(trials.Trial('a', 'end'))
        with self.path.open('a') as file:
            file.write('{"fault": "b", "mom')
        again = self.again()
        self.assertEqual(1, len(again.trials()))
        again.add(trials.Trial('c', 'end'))
        self.assertEqual(['a', 'c'], [
            one.fault for one in self.again().trials()])

    def test_what_was_tried_is_not_tried_again(self):
        self.ledger.add(trials.Trial('a', 'end', problems=['lost']))
        wanted = [('a', 'before'), ('a', 'end')]
        self.assertEqual([('a', 'before')], self.ledger.missing(wanted, 1))
        self.assertEqual([('a', 'before'), *wanted],
                         self.ledger.missing(wanted, 2))

    def test_clear(self):
        self.ledger.add(trials.Trial('a', 'end'))
        self.ledger.clear()
        self.ledger.clear()
        self.assertEqual([], self.ledger.trials())

    def test_what_was_wrong_is_tried_again(self):
        self.ledger.add(trials.Trial('a', 'end', problems=['lost']))
        self.ledger.add(trials.Trial('b', 'end'))
        self.ledger.forget_failed()
        self.assertEqual([('a', 'end')], self.ledger.missing(
            [('a', 'end'), ('b', 'end')], 1))
        self.ledger.add(trials.Trial('a', 'end', status='ACTIVE'))
        self.assertEqual([('a', []), ('b', [])], [
            (one.fault, one.problems) for one in self.again().trials()])

    def test_summary(self):
        def made(fault, profile, *problems, migration='completed'):
            return trials.Trial(fault, 'end', profile, migration=migration,
                                problems=list(problems))
        self.assertEqual(
            ['fault  ceph, end     shared, end',
             '-----  ------------  -----------------',
             'a      1 of 2 WRONG  completed, failed',
             'b      -             completed'],
            trials.summary([
                made('a', 'ceph'), made('a', 'ceph', 'lost'),
                made('a', 'shared'),
                made('a', 'shared', migration='failed'),
                made('b', 'shared')]).splitlines())

    def test_table(self):
        text = trials.show([trials.Trial('a', 'end', problems=['x', 'y']),
                            trials.Trial('b', 'end')])
        self.assertTrue(text.splitlines()[2].endswith('x; y'))
        self.assertTrue(text.splitlines()[3].endswith('-'))

    def test_results(self):
        found = results.Results('make it')
        trials.judge([trials.Trial('a', 'end', 'ceph')], found)
        self.assertEqual(0, found.status())
        trials.judge([trials.Trial('b', 'end', 'ceph',
                                   problems=['x', 'y'])], found)
        self.assertEqual(1, found.status())
        self.assertEqual(('ceph, b, end', 'x; y'),
                         (found.rows[1].name, found.rows[1].value))


class TestPairs(base.TestCase):

    def pairs(self, *patterns, **values):
        return fault_campaign.pairs(patterns, _ALL,
                                    settings.Settings(**values))

    def test_patterns(self):
        self.assertEqual(
            {'link-cut', 'link-cut-long', 'abort'},
            {name for name, _moment in self.pairs('link-cut*', 'abort')})

    def test_each_moment(self):
        self.assertEqual([('abort', moment) for moment in _ALL],
                         self.pairs('abort'))

    def test_disks_are_built_in_few_labs(self):
        for values, wanted in (
                ({}, []), ({'profile': 'local'}, []),
                ({'profile': 'local', 'disks': 'auto'},
                 [('abort', 'filling')])):
            self.assertEqual(wanted, fault_campaign.pairs(
                ('abort',), ('filling',), settings.Settings(**values)))

    def test_a_disk_is_written_early(self):
        found = fault_campaign.pairs(
            ('disk-writer',), fault_campaign.MOMENTS,
            settings.Settings('local', disks='auto'))
        self.assertEqual(['before', 'preparing', 'filling'],
                         [moment for _name, moment in found])

    def test_quick(self):
        """Each fault that fits once; where disks are built, while they are."""
        for values, wanted in (
                ({'profile': 'local', 'disks': 'auto'},
                 set(fault_campaign.QUICK_FILLING)),
                ({'profile': 'local'}, set()), ({}, set())):
            found = fault_campaign.quick_pairs(settings.Settings(**values))
            names = [name for name, _moment in found]
            self.assertEqual(sorted(set(names)), sorted(names))
            self.assertEqual(wanted, {name for name, moment in found
                                      if moment == 'filling'})
            self.assertEqual(
                set(fault_campaign.QUICK) - set(names),
                set() if wanted else {'disk-writer'})

    def test_concurrent_migrations_have_no_moment(self):
        self.assertEqual([('two-at-once', '-')], self.pairs('two*'))

    def test_a_lab_without_a_nas(self):
        self.assertEqual(12, len(self.pairs('nas-*')))
        self.assertEqual([], self.pairs('nas-*', profile='local'))

    def test_all(self):
        self.assertLessEqual(set(fault_campaign.QUICK),
                             set(fault_campaign.NAMES))
        found = {name for values in ({}, {'profile': 'local',
                                          'disks': 'auto'})
                 for name, _moment in self.pairs('*', **values)}
        self.assertEqual(set(fault_campaign.NAMES), found)

    def test_names_are_those_of_the_faults(self):
        for name, fault in faults.FAULTS.items():
            self.assertEqual(name, fault.name)
