# SPDX-License-Identifier: Apache-2.0
"""What the loop does after a look, and when it looks again."""

from unittest import mock

from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.recovery import loop
from nova_dedup_migrate.recovery import rules
from nova_dedup_migrate.tests.unit.operations import samples
from nova_dedup_migrate.tests.unit.recovery import loop_case

#: Of one that is looked at for the first time at 5.0.
_DEADLINE = 5.0 + loop_case.TIMEOUT


class DecisionTest(loop_case.LoopCase):

    def test_waiting_sets_the_deadline_once(self):
        held = self.hold()
        with mock.patch.object(loop.time, 'time', autospec=True,
                               return_value=5.0):
            self.look(held)
        self.assertEqual(_DEADLINE, self.operation.durable.deadline)
        self.look(held)
        self.assertEqual(_DEADLINE, self.operation.durable.deadline)
        (durable, _), = self.store.unfinished()[0]
        self.assertEqual(_DEADLINE, durable.deadline)

    def test_settle_soon_sets_the_deadline_once(self):
        self.hold()
        with mock.patch.object(loop.time, 'time', autospec=True,
                               return_value=5.0):
            self.loop.settle_soon(samples.INSTANCE)
        self.loop.settle_soon(samples.INSTANCE)
        self.assertEqual(_DEADLINE, self.operation.durable.deadline)

    def check_interval(self, name, **fields):
        self.intervals(5.0, name)
        self.see(**fields)
        self.assertEqual(5.0, self.look(), fields)

    def test_what_is_unknown_is_looked_at_less_often(self):
        self.check_interval('UNKNOWN_S')
        self.check_interval('UNKNOWN_S', here=rules.ABSENT)

    def test_a_guest_that_moves_is_looked_at_soon(self):
        self.check_interval('SOON_S', here=rules.POSTCOPY,
                            there=rules.RUNNING)
        self.check_interval('SOON_S', here=rules.ABSENT,
                            there=rules.ARRIVING)

    def test_one_that_is_stuck_is_looked_at_now_and_then(self):
        self.operation.enter(operations.STUCK)
        self.check_interval('INTERVAL_S')

    def test_an_action_is_followed_up_soon(self):
        self.check_interval('SOON_S', here=rules.MIGRATING)

    def test_a_request_is_waited_for_without_a_deadline(self):
        self.operation.enter(operations.REQUESTED)
        self.check_interval('UNKNOWN_S', quiet=1.0, patience=90.0)
        self.assertIsNone(self.operation.durable.deadline)

    def test_what_becomes_of_a_lost_request_has_a_deadline(self):
        self.operation.enter(operations.REQUESTED)
        self.see(quiet=90.0, patience=90.0)
        held = self.hold()
        # the first look begins to count
        held.state = operations.REQUESTED, 'running'
        self.look(held)
        self.assertIsNotNone(self.operation.durable.deadline)

    def test_a_job_that_cannot_be_ended_has_a_deadline(self):
        self.see(here=rules.MIGRATING)
        self.world.ends = False
        self.look()
        self.assertEqual([rules.ABORT_JOB], self.world.acts)
        self.assertIsNotNone(self.operation.durable.deadline)

    def test_quiet(self):
        """It counts from the last change of phase and status on."""
        self.operation.enter(operations.REQUESTED)
        held = self.hold()
        for status, acts in (('accepted', 0), ('queued', 0), ('queued', 1)):
            held.since -= 100.0
            self.see(status=status, patience=90.0, **loop_case.STAYED)
            self.look(held)
            self.assertEqual(acts, len(self.world.acts), status)

    def test_patience_begins_when_novas_queue_releases_it(self):
        """Nova then still needs a moment until its thread owns it."""
        self.operation.enter(operations.REQUESTED)
        held = self.hold()
        self.see(status='preparing', patience=90.0, **loop_case.STAYED)
        self.look(held)
        self.queue.add(samples.INSTANCE)
        for _ in range(3):
            held.since -= 100.0
            self.look(held)
        self.queue.clear()
        self.look(held)
        self.look(held)
        self.assertEqual([], self.world.acts)

    def test_observing_fails(self):
        """As without Nova's database: nothing is known, nothing done."""
        self.world.blind = OSError('no database')
        self.intervals(0.0, 'UNKNOWN_S')
        self.see(**loop_case.STAYED)
        self.loop.hold(self.operation, loaded=True)
        self.looked(3)
        self.assertEqual([], self.world.acts)
        self.assertEqual(0, self.operation.durable.failures)
        self.world.blind = None
        self.ended()


class FailuresTest(loop_case.LoopCase):

    def setUp(self):
        super().setUp()
        self.see(**loop_case.STAYED)
        self.world.error = KeyError('x')

    def test_backoff(self):
        self.intervals(5.0, 'RETRY_S')
        held = self.hold()
        self.assertEqual([5.0, 10.0, 20.0, 40.0, 80.0],
                         [self.look(held) for _ in range(5)])
        self.assertEqual(5, self.operation.durable.failures)
        self.assertEqual(5 * [rules.ROLL_BACK], self.world.acts)

    def test_they_are_written(self):
        """A process that is killed each time must come to an end, too."""
        self.look()
        (durable, _), = self.store.unfinished()[0]
        self.assertEqual(1, durable.failures)
        self.assertEqual(["trying to roll back: 'x'"],
                         self.operation.warnings)

    def test_error_after_too_many(self):
        self.operation.durable.failures = 2
        held = self.hold()
        for _ in range(rules.MAX_FAILURES - 2):
            self.look(held)
        self.world.error = None
        self.look(held)
        self.assertEqual(3 * [rules.ROLL_BACK] + [rules.FAIL],
                         self.world.acts)
        self.assertEqual(operations.STUCK, self.operation.phase)
        # and then nothing more
        self.look(held)
        self.assertEqual(4, len(self.world.acts))

    def test_only_novas_last_steps_count(self):
        """A job that cannot be ended says nothing about those."""
        self.see(here=rules.MIGRATING)
        self.intervals(5.0, 'RETRY_S')
        held = self.hold()
        self.assertEqual([5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 160.0],
                         [self.look(held) for _ in range(7)])
        self.assertEqual(0, self.operation.durable.failures)
        self.assertEqual(7 * [rules.ABORT_JOB], self.world.acts)

    def test_in_the_loop(self):
        self.intervals(0.0, 'RETRY_S')
        self.loop.hold(self.operation, loaded=True)
        self.eventually(lambda: self.world.acts[-1:] == [rules.FAIL],
                        'a rule that gives up')
        self.assertEqual(5 * [rules.ROLL_BACK],
                         self.world.acts[:rules.MAX_FAILURES])
