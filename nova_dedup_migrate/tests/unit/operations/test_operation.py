# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.tasks import record as task_record
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.tasks import fakes


class RecordTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = fakes.record()

    def test_last_look_of_each_round_is_kept(self):
        looks = [fakes.look(1, remaining=3), fakes.look(1, remaining=2),
                 fakes.look(2, remaining=1)]
        for one in looks:
            self.record.see(one)
        self.assertEqual(looks[1:], self.record.rounds)
        self.assertEqual(looks[2], self.record.latest)

    def test_what_is_left_of_an_earlier_attempt_is_not_seen(self):
        self.record.see(fakes.look(rounds=0))
        self.assertIsNone(self.record.latest)

    def test_endless_rounds(self):
        for number in range(1, 3 * task_record.MAX_ROUNDS):
            self.record.see(fakes.look(number))
        self.assertEqual(task_record.MAX_ROUNDS, len(self.record.rounds))
        self.assertEqual(self.record.latest, self.record.rounds[-1])

    def test_first_reason_counts(self):
        self.record.explain('one')
        self.record.explain('two')
        self.assertEqual('one', self.record.reason)

    def test_first_outcome_counts(self):
        self.record.finish('cancelled')
        finished_at = self.record.finished_at
        self.record.finish('completed')
        self.assertEqual('cancelled', self.record.outcome)
        self.assertEqual(finished_at, self.record.finished_at)

    def test_troubles_are_bounded(self):
        for number in range(100):
            self.record.warn('counting', ValueError(number))
        self.assertEqual(task_record.MAX_WARNINGS,
                         len(self.record.warnings))
        self.assertEqual('counting: 0', self.record.warnings[0])

    def test_trouble_without_words(self):
        self.record.warn('counting', ValueError())
        self.assertEqual(['counting: ValueError'], self.record.warnings)
