# SPDX-License-Identifier: Apache-2.0
import threading
from unittest import mock

from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.recovery import loop
from nova_dedup_migrate.recovery import owners
from nova_dedup_migrate.recovery import rules
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples

NEWER = '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a22'
TIMEOUT = 1800
#: Seconds that have to be long enough for nothing to happen.
NEVER = 1e6
_INTERVALS = ('INTERVAL_S', 'SOON_S', 'UNKNOWN_S', 'RETRY_S')
STAYED = {'here': rules.PRESENT, 'there': rules.NONE}


class World(loop.Observer, loop.Actions):
    """What the loop observes, and what it does about it.

    :ivar seen: {migration UUID: fields of its Observation}
    :ivar looks: the migration UUID of each observation
    :ivar acts: the action of each act
    :ivar ends: whether an act ends the operation
    :ivar error: raised by act(), None if it works
    :ivar blind: raised by observe(), None if it works
    """

    def __init__(self, held_by):
        self.seen = {}
        self.looks = []
        self.acts = []
        self.given = []
        self.ends = True
        self.error = None
        self.blind = None
        self._owners = held_by

    def observe(self, operation, quiet, loaded, owner=''):
        self.looks.append(operation.migration_uuid)
        self.given.append((quiet, loaded))
        if self.blind is not None:
            raise self.blind
        durable = operation.durable
        return rules.Observation(**{
            'owner': self._owners.owner(durable.subject, owner),
            'phase': durable.phase, 'failures': durable.failures,
            'quiet': quiet,
            **self.seen.get(operation.migration_uuid, {})})

    def act(self, operation, at, decision):
        self.acts.append(decision.action)
        if self.error is not None:
            raise self.error
        if decision.action == rules.FAIL:
            operation.enter(operations.STUCK)
            return False
        return self.ends


class LoopCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.queue = set()
        self.owners = owners.Owners(lambda uuid: uuid in self.queue)
        self.world = World(self.owners)
        self.store = store.OperationStore(
            self.temporary_dir() / 'operations', 10)
        self.intervals(NEVER)
        self.loop = loop.RecoveryLoop(self.world, self.world, self.owners,
                                      self.store, lambda: TIMEOUT)
        self.addCleanup(self.loop.stop)
        self.operation = self.make()

    def intervals(self, seconds, *names):
        """Set intervals of the loop, by default all of them."""
        for name in names or _INTERVALS:
            patch = mock.patch.object(loop, name, seconds)
            patch.start()
            self.addCleanup(patch.stop)

    def make(self, **fields):
        made = samples.make(self.store.write, **fields)
        made.save()
        return made

    def see(self, uuid=samples.MIGRATION, **fields):
        self.world.seen[uuid] = fields

    def looked(self, count=1):
        """Wait until it has been observed, and nothing is under way."""
        self.eventually(lambda: len(self.world.looks) >= count
                        and not self.owners._owners, 'a look')

    def ended(self, uuid=samples.INSTANCE):
        self.eventually(lambda: self.loop.held(uuid) is None, 'the end')

    def look(self, held=None):
        """Look once, without the loop's threads; return seconds."""
        return self.loop._look(held or self.hold())

    def hold(self, **given):
        """Hold the operation without starting the thread."""
        with mock.patch.object(self.loop, '_start', autospec=True):
            self.loop.hold(self.operation, **given)
        return self.loop._held[self.operation.migration_uuid]


class HoldingTest(LoopCase):

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
        self.see(**STAYED)
        self.loop.hold(self.operation, loaded=True)
        self.ended()
        self.assertEqual([rules.ROLL_BACK], self.world.acts)
        self.assertTrue(self.world.given[0][1])

    def test_settle_soon(self):
        self.see(**STAYED)
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


class SupersededTest(LoopCase):

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
        self.see(NEWER, **STAYED)
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


class OwnedTest(LoopCase):

    def test_a_session_is_left_alone(self):
        self.see(**STAYED)
        with self.owners.claim(samples.INSTANCE, owners.SESSION):
            self.loop.hold(self.operation, loaded=True)
            held = self.loop._held[samples.MIGRATION]
            self.eventually(lambda: 0 < held.due < loop.math.inf, 'a look')
        # not even observed: that would be queries for nothing
        self.assertEqual([], self.world.looks)
        self.loop.settle_soon(samples.INSTANCE)
        self.ended()

    def test_novas_queue_is_left_alone(self):
        self.see(**STAYED)
        self.queue.add(samples.INSTANCE)
        self.assertEqual(NEVER, self.look())
        self.assertEqual([], self.world.acts)

    def test_it_is_claimed_while_it_is_settled(self):
        seen = []
        self.see(**STAYED)
        act = self.world.act

        def look(*args):
            seen.append(self.owners.owner(samples.INSTANCE))
            return act(*args)

        self.world.act = look
        self.loop.hold(self.operation, loaded=True)
        self.ended()
        self.assertEqual([owners.RECOVERY], seen)
        self.eventually(lambda: not self.owners._owners, 'no owner')


class DecisionTest(LoopCase):

    def test_waiting_sets_the_deadline_once(self):
        held = self.hold()
        with mock.patch.object(loop.time, 'time', autospec=True,
                               return_value=5.0):
            self.look(held)
        self.assertEqual(5.0 + TIMEOUT, self.operation.durable.deadline)
        self.look(held)
        self.assertEqual(5.0 + TIMEOUT, self.operation.durable.deadline)
        (durable, _), = self.store.unfinished()[0]
        self.assertEqual(5.0 + TIMEOUT, durable.deadline)

    def test_settle_soon_sets_the_deadline_once(self):
        self.hold()
        with mock.patch.object(loop.time, 'time', autospec=True,
                               return_value=5.0):
            self.loop.settle_soon(samples.INSTANCE)
        self.loop.settle_soon(samples.INSTANCE)
        self.assertEqual(5.0 + TIMEOUT, self.operation.durable.deadline)

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
            self.see(status=status, patience=90.0, **STAYED)
            self.look(held)
            self.assertEqual(acts, len(self.world.acts), status)

    def test_observing_fails(self):
        """As without Nova's database: nothing is known, nothing done."""
        self.world.blind = OSError('no database')
        self.intervals(0.0, 'UNKNOWN_S')
        self.see(**STAYED)
        self.loop.hold(self.operation, loaded=True)
        self.looked(3)
        self.assertEqual([], self.world.acts)
        self.assertEqual(0, self.operation.durable.failures)
        self.world.blind = None
        self.ended()


class FailuresTest(LoopCase):

    def setUp(self):
        super().setUp()
        self.see(**STAYED)
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


class PaceTest(LoopCase):

    def test_no_busy_loop(self):
        """Each interval has one observation."""
        self.intervals(NEVER)
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
        self.see(**STAYED)
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
        self.see(NEWER, **STAYED)
        self.loop.hold(self.operation, loaded=True)
        self.loop.hold(other, loaded=True)
        self.ended(NEWER)
        self.assertIsNotNone(self.loop.held(samples.INSTANCE))
        self.see(**STAYED)
        go_on.set()
        self.ended()
