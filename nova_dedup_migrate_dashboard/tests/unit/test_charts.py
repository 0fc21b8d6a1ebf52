# SPDX-License-Identifier: Apache-2.0
import math

from nova_dedup_migrate.tests import base
from nova_dedup_migrate_dashboard import charts


def one_round(seconds, **pages):
    return {'number': 1, 'seconds': seconds, 'pages': pages}


class PartsTest(base.TestCase):
    def test_widths_are_shares_and_follow_each_other(self):
        found = charts.parts([('a', 1), ('b', 0), ('c', 3), ('d', None)])
        self.assertEqual(
            [('a', '0.00', '25.00'), ('c', '25.00', '75.00')],
            [(one.name, one.x, one.width) for one in found])

    def test_nothing_has_no_parts(self):
        self.assertEqual([], charts.parts([('a', 0), ('b', None)]))

    def test_paths_begin_with_what_the_link_carries(self):
        self.assertEqual(['peer', 'storage', 'zero'], [
            one.name for one in charts.paths(
                {'zero': 1, 'storage': 1, 'peer': 1})])


class RoundsTest(base.TestCase):
    def test_nothing_sent_has_no_chart(self):
        self.assertIsNone(charts.rounds([]))
        self.assertIsNone(charts.rounds([one_round(1.0)]))
        self.assertIsNone(charts.rounds([one_round(0.0, peer=1)]))

    def test_areas_are_on_top_of_each_other(self):
        chart = charts.rounds([
            one_round(1.0, peer=100, storage=300, zero=100),
            one_round(1.0, peer=100)])
        areas = {name: [tuple(map(float, point.split(',')))
                        for point in points.split()]
                 for name, points in chart.areas}
        self.assertEqual(['peer', 'storage', 'zero'], list(areas))
        for lower, upper in (('peer', 'storage'), ('storage', 'zero')):
            # The top of one is the bottom of the next, backwards.
            self.assertEqual(areas[lower][:3], areas[upper][:2:-1])
        for points in areas.values():
            for x, y in points:
                self.assertTrue(chart.left <= x <= chart.right, points)
                self.assertTrue(chart.top <= y <= chart.bottom, points)
        # 600 pages at the end; twice as many of the link as after round 1.
        bottom = chart.bottom
        self.assertAlmostEqual(2 * (bottom - areas['peer'][1][1]),
                               bottom - areas['peer'][2][1], 1)
        self.assertEqual(1, len(chart.rounds))

    def test_a_path_without_pages_has_no_area(self):
        chart = charts.rounds([one_round(1.0, storage=5)])
        self.assertEqual(['storage'], [name for name, _ in chart.areas])

    def test_any_size_and_duration_fits(self):
        for size in (1, 7, 10**3, 10**6, 10**10):
            for seconds in (1e-3, 0.3, 1.0, 59.0, 4e4, 1e7):
                chart = charts.rounds([one_round(seconds, peer=size)])
                self.assertTrue(2 <= len(chart.sizes) <= 6, size)
                self.assertTrue(1 <= len(chart.times) <= 5, seconds)
                for tick in (*chart.sizes, *chart.times):
                    self.assertTrue(math.isfinite(float(tick.at)))
                    self.assertTrue(0 <= float(tick.at) <= chart.width)

    def test_ticks_are_round(self):
        self.assertEqual([0, 20, 40, 60, 80, 100], charts._ticks(100))
        self.assertEqual([0, 0.5, 1.0, 1.5], charts._ticks(1.9))
        for most in (0.001, 0.9, 3, 17, 42, 99, 1234, 5e9):
            ticks = charts._ticks(most)
            self.assertTrue(3 <= len(ticks) <= 6, (most, ticks))
            self.assertLessEqual(ticks[-1], most * 1.0000001)
