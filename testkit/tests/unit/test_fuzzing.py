# SPDX-License-Identifier: Apache-2.0
import json
import random
import unittest
from unittest import mock

import fixtures

from nova_dedup_migrate.tests import base
from testkit import fuzzing


class DamageTest(unittest.TestCase):

    def test_every_kind_of_change(self):
        """Of one seed the same; shorter, longer, and not the input."""
        data = bytes(range(200))
        found = [fuzzing.damage(random.Random(seed), data, (b'word',))
                 for seed in range(300)]
        self.assertEqual(found, [
            fuzzing.damage(random.Random(seed), data, (b'word',))
            for seed in range(300)])
        lengths = {len(one) for one in found}
        self.assertLess(min(lengths), 150)
        self.assertGreater(max(lengths), 200)
        self.assertTrue(any(b'word' in one for one in found))
        self.assertLess(found.count(data), 30)

    def test_nothing_to_damage(self):
        for seed in range(100):
            fuzzing.damage(random.Random(seed), b'', (b'word',))


class MainTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.top = self.temporary_dir()
        self.useFixture(fixtures.MockPatchObject(fuzzing, 'TOP', self.top))
        self.useFixture(fixtures.MockPatch('builtins.print'))
        self.calls = []

    def good(self, chance, rounds):
        self.calls.append((chance.random(), rounds))

    def bad(self, chance, rounds):
        assert chance.random() not in self.fails, 'it is wrong'

    def run_(self, *words):
        """Return the exit status and the rows."""
        status = fuzzing.main('fuzz-x', 'Fuzz.', {
            'good': self.good, 'bad': self.bad}, list(words))
        report = json.loads(
            (self.top / 'build/fuzz-x/report.json').read_text())
        return status, {row['name']: row for row in report['rows']}

    def test_rounds_and_seeds(self):
        status, rows = self.run_('--rounds', '2500', '--seed', '7',
                                 '--only', 'good')
        self.assertEqual(0, status)
        self.assertEqual([(random.Random(seed).random(), count)
                          for seed, count in ((7, 1000), (8, 1000),
                                              (9, 500))], self.calls)
        self.assertEqual(2500, rows['good: inputs']['value'])
        self.assertNotIn('bad: inputs', rows)

    def test_how_many(self):
        self.fails = ()
        for words, count in (((), fuzzing.ROUNDS),
                             (('--quick',), fuzzing.QUICK)):
            with mock.patch.object(fuzzing, '_run') as run:
                fuzzing.main('fuzz-x', 'Fuzz.', {'good': self.good},
                             list(words))
            self.assertEqual(count, run.call_args.args[-1])

    def test_a_parser_that_fails(self):
        """Its seed is shown; the others run, and the rows are there."""
        self.fails = (random.Random(2).random(),)
        with mock.patch('traceback.print_exc'):
            status, rows = self.run_('--rounds', '3000')
        self.assertEqual(1, status)
        self.assertFalse(rows['bad: inputs']['ok'])
        self.assertEqual(
            'AssertionError: it is wrong; repeat it with --only bad --seed 2 '
            '--rounds 1000', rows['bad: inputs']['value'])
        self.assertTrue(rows['good: inputs']['ok'])
