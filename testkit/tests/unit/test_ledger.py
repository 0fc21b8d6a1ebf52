# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.tests import base
from testkit import ledger


def key(repeat=0, **changes):
    return ledger.Key(**{'cell': 'grid: 10 %', 'variant': 'stock',
                         'repeat': repeat, 'inputs': 'abc', **changes})


class LedgerTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_dir() / 'new' / 'runs.jsonl'

    def again(self):
        return ledger.Ledger(self.path)

    def test_survives(self):
        self.assertIsNone(self.again().get(key()))
        self.again().add(key(), {'total_time_s': 1.5})
        self.again().add(key(1), {'total_time_s': 2.5})
        self.assertEqual({'total_time_s': 1.5}, self.again().get(key()))
        self.assertEqual({'total_time_s': 2.5}, self.again().get(key(1)))

    def test_other_inputs_are_another_run(self):
        self.again().add(key(), {'total_time_s': 1.5})
        self.assertIsNone(self.again().get(key(inputs='abd')))

    def test_the_last_one_counts(self):
        self.again().add(key(), {'failed': 'x'})
        self.again().add(key(), {'total_time_s': 1.5})
        self.assertEqual({'total_time_s': 1.5}, self.again().get(key()))

    def test_cut_line_is_done_again(self):
        first = self.again()
        first.add(key(), {'total_time_s': 1.5})
        first.add(key(1), {'total_time_s': 2.5})
        whole = self.path.read_bytes()
        for cut in range(whole.index(b'\n') + 1, len(whole) - 1):
            self.path.write_bytes(whole[:cut])
            found = self.again()
            self.assertIsNotNone(found.get(key()))
            self.assertIsNone(found.get(key(1)))
            found.add(key(1), {'total_time_s': 3.5})
            self.assertEqual({'total_time_s': 3.5}, self.again().get(key(1)))
            self.assertIsNotNone(self.again().get(key()))

    def test_nonsense_is_dropped(self):
        self.path.parent.mkdir()
        self.path.write_bytes(b'\xff\n[]\n1\n{}\n{"key": 1}\n{"key": {}}\n')
        self.assertIsNone(self.again().get(key()))

    def test_failed_runs_can_be_done_again(self):
        found = self.again()
        found.add(key(), {'failed': 'x'})
        found.add(key(1), {'total_time_s': 1.5})
        self.assertEqual(1, found.forget(lambda record: 'failed' in record))
        self.assertIsNone(found.get(key()))
        self.assertIsNotNone(found.get(key(1)))
