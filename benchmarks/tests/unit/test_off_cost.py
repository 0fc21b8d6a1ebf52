# SPDX-License-Identifier: Apache-2.0
import testtools

from benchmarks import lab_bench
from benchmarks import off_cost


def migrations(*seconds, factor=1.0):
    return [off_cost.Migration(s, s / 2, int(s * 1e6 * factor))
            for s in seconds]


class TestOrder(testtools.TestCase):

    def test_alternates(self):
        found = [off_cost.order(pair, lab_bench.OFF) for pair in range(4)]
        plain, ours = lab_bench.PLAIN, lab_bench.OFF
        self.assertEqual([[plain, ours], [ours, plain]] * 2, found)

    def test_each_way_as_often(self):
        # the host changes with every migration
        ways = {lab_bench.PLAIN: [], lab_bench.OFF: []}
        for number, (_pair, driver, measured) in enumerate(
                off_cost.schedule(off_cost.PAIRS, lab_bench.OFF)):
            if measured:
                ways[driver].append(number % 2)
        self.assertEqual(ways[lab_bench.PLAIN], ways[lab_bench.OFF])
        for found in ways.values():
            self.assertEqual(off_cost.PAIRS, len(found))
            self.assertEqual(len(found), 2 * sum(found))

    def test_a_new_nova_compute_is_not_measured(self):
        plain, ours = lab_bench.PLAIN, lab_bench.OFF
        self.assertEqual(
            [(0, plain, True), (0, ours, False), (0, ours, True),
             (1, ours, True), (1, plain, False), (1, plain, True)],
            list(off_cost.schedule(2, ours)))


class TestCompare(testtools.TestCase):

    def test_medians(self):
        rows = off_cost.compare('off', migrations(1.0, 2.0, 9.0),
                                migrations(2.04, 2.0, 2.05))
        self.assertEqual([2.0, 2.0, 2.0], [row.value for row in rows])
        self.assertTrue(all(row.ok for row in rows))

    def test_slower(self):
        rows = off_cost.compare('off', migrations(5.0), migrations(6.5))
        self.assertEqual([30.0] * 3, [row.value for row in rows])
        self.assertFalse(any(row.ok for row in rows))

    def test_faster_is_ok(self):
        rows = off_cost.compare('off', migrations(2.0), migrations(1.0))
        self.assertTrue(all(row.ok for row in rows))

    def test_more_bytes(self):
        rows = off_cost.compare('off', migrations(2.0),
                                migrations(2.0, factor=1.1))
        self.assertEqual([True, True, False], [row.ok for row in rows])

    def test_no_job_time(self):
        rows = off_cost.compare(
            'off', migrations(2.0), [off_cost.Migration(2.0, None, 2000000)])
        self.assertEqual([True, False, True], [row.ok for row in rows])
        self.assertEqual('not known', rows[1].value)


class TestSpread(testtools.TestCase):

    def test_lines(self):
        lines = off_cost.spread('off', {
            'a': migrations(1.0, 3.0, 2.0), 'b': []})
        self.assertEqual(
            [('off', 'a', 3, '2.00 (1.00 to 3.00)', '1.00 (0.50 to 1.50)',
              '2.00 (1.00 to 3.00)'), ('off', 'b', 0, '-', '-', '-')],
            lines)
