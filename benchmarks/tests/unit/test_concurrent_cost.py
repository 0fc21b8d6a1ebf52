# SPDX-License-Identifier: Apache-2.0
import testtools

from benchmarks import concurrent_cost
from benchmarks.concurrent_cost import Round


class TestRows(testtools.TestCase):

    def rows(self, wrong=(), **values):
        plain = Round('plain', 9.0, 20, 100.0, 200.0)
        ours = Round('ours', 9.0, 40, 120.0, 230.0)
        for name, value in values.items():
            setattr(ours, name, value)
        return {row.name.split(' for ')[0]: row for row in
                concurrent_cost.rows_of(ours, plain, list(wrong), 20)}

    def failed(self, **values):
        return [name for name, row in self.rows(**values).items()
                if not row.ok]

    def test_good(self):
        rows = self.rows()
        self.assertEqual([], self.failed())
        self.assertEqual(1.0, rows['threads of nova-compute'].value)
        self.assertEqual(20.0, rows['messages'].value)
        self.assertEqual(30.0, rows['queries'].value)

    def test_each_is_checked(self):
        for name, values in (
                ('arrived, ours', {'stayed': ['x']}),
                ('memory as it was', {'wrong': ['x']}),
                ('ordinary migrations, ours', {'ordinary': ['x']}),
                ('threads of nova-compute', {'threads': 81}),
                ('messages', {'messages': 141.0}),
                ('queries', {'queries': 241.0})):
            self.assertEqual([name], self.failed(**values))

    def test_less_is_ok(self):
        self.assertEqual([], self.failed(messages=1.0, queries=1.0))
