# SPDX-License-Identifier: Apache-2.0
"""Figures and words of the pages; make dashboard-check runs it."""

import unittest

from django.utils import timezone

from nova_dedup_migrate_dashboard import progress
from nova_dedup_migrate_dashboard import words
from nova_dedup_migrate_dashboard.templatetags import dedup_migrate as tags


def band(low, likely, high):
    return {'low': low, 'likely': likely, 'high': high}


class FiguresTest(unittest.TestCase):
    def test_bands(self):
        for expected, value in (
                ('–', None),
                ('42 s (36 s to 60 s)', band(36, 42, 60)),
                ('42 s', band(42, 42, 42)),
                ('42 s', band(None, 42, None)),
                ('42 s (36 s or more)', band(36, 42, None)),
                ('without end, at best 36 s', band(36, None, None)),
                ('without end', band(None, None, None)),
                ('0.0 s', band(0, 0, 0))):
            self.assertEqual(expected, tags.band(value))
        self.assertEqual('1 GB (500 MB to 2 GB)',
                         tags.size_band(band(5e8, 1e9, 2e9)))
        self.assertEqual('120 ms (90 ms to 200 ms)',
                         tags.short_band(band(0.09, 0.12, 0.2)))

    def test_percent_is_never_too_much(self):
        self.assertEqual([0, 0, 99, 100, 100, 0], [
            tags.percent(value)
            for value in (None, 0.0, 0.999, 1.0, 1.7, -1)])

    def test_times_are_in_the_zone_of_the_user(self):
        with timezone.override('America/New_York'):
            self.assertEqual('2026-11-22 12:11:02', tags.when(
                '2026-11-22T17:11:02.746+00:00'))
        self.assertEqual('–', tags.when(None))
        self.assertEqual('–', tags.when('soon'))

    def test_each_word_of_the_api_has_a_text(self):
        self.assertEqual(
            sorted(state for group in progress.GROUPS.values()
                   for state in group), sorted(words.SERVER))
        self.assertEqual(set(progress.GROUPS), set(words.GROUPS))
        self.assertLessEqual(set(progress.OVER), set(words.DRAIN))

    def test_a_word_of_a_later_api_is_shown_as_it_is(self):
        self.assertEqual('new way', tags.name('new_way', 'strategy'))
        self.assertEqual({'text': 'resting', 'colour': 'idle'},
                         tags.state('resting', 'drain'))

    def test_bars_have_a_text(self):
        found = tags.paths_bar({'peer': 10 ** 6, 'zero': 0, 'storage': 1})
        self.assertEqual('1 MB sent over the network, 1 B read from storage',
                         found['text'])


if __name__ == '__main__':
    unittest.main()
