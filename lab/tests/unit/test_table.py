# SPDX-License-Identifier: Apache-2.0
from lab import demonstration
from lab import migrations
from nova_dedup_migrate.tests import base
from testkit import table


class TestTable(base.TestCase):

    def test_columns_are_as_wide_as_they_need(self):
        self.assertEqual(
            'name  n\n'
            '----  ----\n'
            'a      1.5\n'
            'b     -',
            table.text(('name', 'n'), [('a', ' 1.5'), ('b', '-')])
            .replace('b        -', 'b     -'))

    def test_numbers_are_aligned_to_the_right(self):
        lines = table.text(('n', 'text'), [(5, 'x'), (100, 'y')])
        self.assertEqual(['  n  text', '---  ----', '  5  x', '100  y'],
                         lines.split('\n'))

    def test_no_rows_are_a_head(self):
        self.assertEqual('a  b\n-  -', table.text(('a', 'b'), []))


class TestShow(base.TestCase):

    @staticmethod
    def outcome(kind, seconds, sent, downtime=300):
        return migrations.Outcome(
            kind, 'compute1', 'compute2', seconds, sent, downtime,
            1 << 28, 0, 'uuid')

    def test_kinds_are_compared(self):
        text = demonstration.show([
            self.outcome('stock', 40.0, 400_000_000),
            self.outcome('dedup', 10.0, 100_000_000),
            self.outcome('stock', 60.0, 400_000_000)])
        self.assertIn('dedup took 20 % of the time of stock and sent 25 % '
                      'of the bytes', text)
        self.assertIn('40.0    400.0', text)

    def test_one_kind_is_compared_with_nothing(self):
        text = demonstration.show([self.outcome('stock', 1.0, 1, None)])
        self.assertNotIn('% of the', text)
        self.assertIn('  -  ', text)
