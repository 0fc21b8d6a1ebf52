# SPDX-License-Identifier: Apache-2.0
"""What the loop holds, whom it leaves alone, when it looks."""

import threading
from unittest import mock

from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.recovery import loop
from nova_dedup_migrate.recovery import owners
from nova_dedup_migrate.recovery import rules
from nova_dedup_migrate.tests.unit.operations import samples
from nova_dedup_migrate.tests.unit.recovery import loop_case

NEWER = '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a22'


class HoldingTest(loop_case.LoopCase):

    def test_nothing_is_held(self):
        """Then there is not even a thread."""
        self.assertIsNone(self.loop.held(samples.INSTANCE))
        self.loop.settle_soon(samples.INSTANCE)
        self.assertIsNone(self.loop._thread)
        self.assertEqual([], self.world.looks)

    def test_a_new_one_is_not_looked_at_at_once(self):
        self.loop.hold(self.operation)
        self.assertIs(self.operation, self.loop.held(samples.INSTANCE))
        self.loop.stop()
        self.loop._thread.join(30)
        self.assertEqual([], self.world.looks)

    def test_one_of_an_earlier_process_is(self):
        self.see(**loop_case.STAYED)
        self.loop.hold(self.operation, loaded=True)
        self.ended()
        self.assertEqual([rules.ROLL_BACK], self.world.acts)
        self.assertTrue(self.world.given[0][1])

    def test_settle_soon(self):
        self.see(**loop_case.STAYED)
        self.loop.hold(self.operation)
        self.loop.settle_soon('another instance')
        self.assertEqual([], self.world.looks)
        self.loop.settle_soon(samples.INSTANCE)
        self.ended()
        self.assertEqual([rules.ROLL_BACK], self.world.acts)

    def test_release(self):
        self.loop.hold(self.operation)
        self.operation.finish('completed')
        self.loop.release(self.operation)
        self.assertIsNone(self.loop.held(samples.INSTANCE))
        made = self.store.read(samples.MIGRATION)
        self.assertEqual(('completed', operations.ENDED),
                         (made.outcome, made.phase))
        # and once more, as nobody holds it
        self.loop.release(self.operation)

    def test_released_without_an_outcome(self):
        self.loop.release(self.operation)
        self.assertEqual('failed', self.store.read(
            samples.MIGRATION).outcome)

    def test_a_request_that_came_to_nothing(self):
        """It leaves no file and no report."""
        self.operation.enter(operations.REQUESTED)
        self.see(migrating=False)
        self.loop.hold(self.operation, loaded=True)
        self.ended()
        self.eventually(lambda: not self.store.names(), 'no file')
        self.assertEqual([rules.FORGET], self.world.acts)

    def test_its_file_cannot_be_removed(self):
        self.operation.enter(operations.REQUESTED)
        self.loop.hold(self.operation)
        with mock.patch.object(store.os, 'unlink', autospec=True,
                               side_effect=PermissionError):
            self.loop.release(self.operation)
        self.assertIsNone(self.loop.held(samples.INSTANCE))
        self.assertEqual(1, len(self.operation.warnings))

    def test_ended_while_it_waited_for_its_turn(self):
        held = self.hold()
        self.loop.release(self.operation)
        self.loop._settle(held)
        self.assertEqual([], self.world.looks)

    def test_stop(self):
        self.loop.hold(self.operation)
        thread = self.loop._thread
        self.loop.stop()
        thread.join(30)
        self.assertFalse(thread.is_alive())
        # what comes later begins nothing
        self.loop.hold(self.operation, loaded=True)
        self.loop.settle_soon(samples.INSTANCE)
        self.assertIs(thread, self.loop._thread)
        self.assertEqual([], self.world.looks)

    def test_stop_before_it_has_begun(self):
        self.loop.stop()
        self.loop.hold(self.operation, loaded=True)
        self.assertIsNone(self.loop._thread)


class SupersededTest(loop_case.LoopCase):

    def setUp(self):
        super().setUp()
        self.newer = self.make(id=NEWER, started_at=samples.STARTED + 9)

    def test_the_newer_one_counts(self):
        """In whatever order they were loaded."""
        for order in ((self.operation, self.newer),
                      (self.newer, self.operation)):
            self.loop._held.clear()
            for one in order:
                self.loop.hold(one)
            self.assertIs(self.newer, self.loop.held(samples.INSTANCE))

    def test_the_older_one_is_settled(self):
        """Its file would stay for ever."""
        self.operation.enter(operations.REQUESTED)
        self.see(superseded=True)
        self.loop.hold(self.operation)
        self.loop.hold(self.newer)
        self.loop._held[samples.MIGRATION].due = 0.0
        self.loop.settle_soon('wake up')
        self.eventually(lambda: self.store.names() == [NEWER], 'its end')
        self.assertEqual([rules.FORGET], self.world.acts)
        self.assertIs(self.newer, self.loop.held(samples.INSTANCE))

    def test_settle_soon_is_about_the_newer_one(self):
        self.see(NEWER, **loop_case.STAYED)
        self.loop.hold(self.operation)
        self.loop.hold(self.newer)
        self.loop.settle_soon(samples.INSTANCE)
        self.eventually(
            lambda: self.loop.held(samples.INSTANCE) is self.operation,
            'the end of the newer one')
        self.assertEqual([NEWER], self.world.looks)

    def test_the_same_migration_again(self):
        """As when Nova has chosen another destination for it."""
        again = self.make()
        self.loop.hold(self.operation)
        self.loop.hold(again)
        self.assertIs(again, self.loop.held(samples.INSTANCE))
        # the one before is not the one that is held
        self.loop.release(self.operation)
        self.assertIs(again, self.loop.held(samples.INSTANCE))


class OwnedTest(loop_case.LoopCase):

    def test_a_session_is_left_alone(self):
        self.see(**loop_case.STAYED)
        with self.owners.claim(samples.INSTANCE, owners.SESSION):
            self.loop.hold(self.operation, loaded=True)
            held = self.loop._held[samples.MIGRATION]
            self.eventually(lambda: 0 < held.due < loop.math.inf, 'a look')
        # not even observed: that would be queries for nothing
        self.assertEqual([], self.world.looks)
        self.loop.settle_soon(samples.INSTANCE)
        self.ended()

    def test_novas_queue_is_left_alone(self):
        self.see(**loop_case.STAYED)
        self.queue.add(samples.INSTANCE)
        self.assertEqual(loop_case.NEVER, self.look())
        self.assertEqual([], self.world.acts)

    def test_it_is_claimed_while_it_is_settled(self):
        seen = []
        self.see(**loop_case.STAYED)
        act = self.world.act

        def look(*args):
            seen.append(self.owners.owner(samples.INSTANCE))
            return act(*args)

        self.world.act = look
        self.loop.hold(self.operation, loaded=True)
        self.ended()
        self.assertEqual([owners.RECOVERY], seen)
        self.eventually(lambda: not self.owners._owners, 'no owner')


class PaceTest(loop_case.LoopCase):

    def test_no_busy_loop(self):
        """Each interval has one observation."""
        self.intervals(loop_case.NEVER)
        self.loop.hold(self.operation, loaded=True)
        self.looked()
        other = self.make(id=NEWER, subject=NEWER)
        for _ in range(20):
            # whatever wakes the loop up
            self.loop.hold(other)
            self.loop.settle_soon('nobody')
            self.loop.release(other)
        self.loop.stop()
        self.loop._thread.join(30)
        self.assertEqual([samples.MIGRATION], self.world.looks)

    def test_it_comes_again(self):
        self.intervals(0.0, 'UNKNOWN_S')
        self.loop.hold(self.operation, loaded=True)
        self.looked(5)
        self.see(**loop_case.STAYED)
        self.ended()
        self.assertEqual([rules.ROLL_BACK], self.world.acts)

    def test_settle_soon_while_it_is_settled(self):
        """What is new then is not lost."""
        held = self.hold()
        held.due = loop.math.inf
        observe = self.world.observe

        def look(*args):
            self.loop.settle_soon(samples.INSTANCE)
            return observe(*args)

        self.world.observe = look
        self.loop._settle(held)
        self.assertEqual(0.0, held.due)

    def test_one_that_hangs_does_not_hold_up_the_others(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        observe = self.world.observe

        def hang(operation, *args):
            if operation is self.operation:
                go_on.wait(30)
            return observe(operation, *args)

        self.world.observe = hang
        other = self.make(id=NEWER, subject=NEWER)
        self.see(NEWER, **loop_case.STAYED)
        self.loop.hold(self.operation, loaded=True)
        self.loop.hold(other, loaded=True)
        self.ended(NEWER)
        self.assertIsNotNone(self.loop.held(samples.INSTANCE))
        self.see(**loop_case.STAYED)
        go_on.set()
        self.ended()
