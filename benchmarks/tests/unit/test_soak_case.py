# SPDX-License-Identifier: Apache-2.0
"""A run of the soak follows from its seed, and can be done."""

import dataclasses

from benchmarks import soak
from benchmarks import soak_case
from guests.synthetic import workload
from nova_dedup_migrate.tests import base

SEEDS = range(500)


class SoakCaseTest(base.TestCase):

    def test_same_seed_same_case(self):
        for seed in SEEDS:
            self.assertEqual(soak_case.choose(seed), soak_case.choose(seed))

    def test_cases_differ(self):
        self.assertEqual(len(SEEDS),
                         len({soak_case.choose(seed) for seed in SEEDS}))

    def test_guest_fits(self):
        for case in map(soak_case.choose, SEEDS):
            self.assertLess(
                case.cache + case.anon + workload.kernel_mib(case.memory),
                case.memory - 30)

    def test_combinations_are_possible(self):
        for case in map(soak_case.choose, SEEDS):
            for attempt in case.attempts:
                self.assertFalse(attempt.xbzrle and attempt.multifd)
                if attempt.postcopy_after is not None:
                    self.assertFalse(attempt.multifd)
                    self.assertNotEqual('own', case.storage)
            # a mirror and a filter are set up once
            if case.storage != 'shared':
                self.assertEqual(1, len(case.attempts))
            # the last attempt is one that is to arrive
            self.assertIsNone(case.attempts[-1].cancel_after)

    def test_late_fetches_are_frequent(self):
        cases = list(map(soak_case.choose, SEEDS))
        late = [case for case in cases
                if case.mode == 'recycle' and case.attempts[-1].inject
                and case.stock == 'none' and not case.attempts[-1].resend]
        self.assertGreater(len(late), len(SEEDS) / 5)
        for multifd in (True, False):
            self.assertTrue([case for case in late if multifd ==
                             bool(case.attempts[-1].multifd)])

    def test_words_of_a_report(self):
        case = dataclasses.asdict(soak_case.choose(4))
        self.assertIn(case['mode'], soak_case.words(case))

    def test_all_that_is_new_is_chosen(self):
        cases = list(map(soak_case.choose, SEEDS))
        self.assertEqual(4, len({case.series for case in cases}))
        attempts = [one for case in cases for one in case.attempts]
        self.assertEqual({None, 0, 1, 2}, {one.threads for one in attempts})
        for name in ('lazy', 'defer'):
            chosen = [getattr(one, name) for one in attempts]
            self.assertGreater(sum(chosen), len(SEEDS) / 20, name)
        for one in attempts:
            self.assertFalse(one.lazy and one.postcopy_after is None)

    def test_count(self):
        case = dataclasses.asdict(soak_case.choose(4))
        case['series'] = ('10.0', '10.2')
        found = soak.count({'case': case, 'hops': [
            {'arrived': False, 'compared': 0},
            {'arrived': True, 'compared': 7, 'storage_pages': 3,
             'compressed_pages': 2, 'lazy_pages': 1}]})
        self.assertEqual({
            'migrations': 1, 'migrations between series': 1,
            'migrations given up': 1, 'pages from storage': 3,
            'pages compressed': 2, 'pages read in post-copy': 1,
            'pages compared': 7}, found)
