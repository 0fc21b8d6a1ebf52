# SPDX-License-Identifier: Apache-2.0
import errno
import threading
from unittest import mock

from nova_dedup_migrate.operations import errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples
from nova_dedup_migrate.tests.unit.tasks import fakes

FULL = errors.StoreUnusable(path='/x',
                            reason=OSError(errno.ENOSPC, 'no space'))
PROGRESS = report.Progress(0.5, 10.0, samples.STARTED)


class OperationCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.disk = samples.Disk()
        self.operation = samples.make(self.disk.save)
        self.durable = self.operation.durable



class UndoLogTest(OperationCase):

    def test_it_is_written(self):
        self.operation.will(operations.UNDO_MAP)
        self.operation.will(operations.UNDO_ARM)
        self.assertEqual(
            [('running', operations.UNDO_MAP),
             ('running', operations.UNDO_MAP, operations.UNDO_ARM)],
            self.disk.written)

    def test_an_entry_is_there_once(self):
        for _ in range(3):
            self.operation.will(operations.UNDO_ARM)
        self.assertEqual([operations.UNDO_ARM], self.durable.undo)
        self.assertEqual(1, len(self.disk.written))

    def test_disk_is_full(self):
        """The caller must not do what could not be undone."""
        self.disk.error = FULL
        raised = self.assertRaises(errors.StoreUnusable,
                                   self.operation.will, operations.UNDO_ARM)
        self.assertIs(FULL, raised)
        self.assertEqual([], self.durable.undo)
        # nor is it taken for written the next time
        self.assertRaises(errors.StoreUnusable, self.operation.will,
                          operations.UNDO_ARM)
        self.disk.error = None
        self.operation.will(operations.UNDO_ARM)
        self.assertEqual([('running', operations.UNDO_ARM)],
                         self.disk.written)

    def test_undone(self):
        self.durable.undo = [operations.UNDO_MAP, operations.UNDO_ARM]
        self.operation.undone(operations.UNDO_MAP)
        self.operation.undone(operations.UNDO_MAP)
        self.assertEqual([('running', operations.UNDO_ARM)],
                         self.disk.written)

    def test_undone_with_a_full_disk(self):
        """It is undone once more after a crash, which does no harm."""
        self.durable.undo = [operations.UNDO_ARM]
        self.disk.error = FULL
        self.operation.undone(operations.UNDO_ARM)
        self.assertEqual([], self.durable.undo)
        self.assertEqual(1, len(self.operation.warnings))


class PhaseTest(OperationCase):

    def test_of_a_new_one(self):
        durable = operations.Durable('a', operations.LIVE_MIGRATION, 'b',
                                     'c', '', 'auto', 'flavor')
        self.assertEqual(operations.REQUESTED, durable.phase)
        self.assertIsNone(durable.deadline)

    def test_enter(self):
        with mock.patch.object(operations.time, 'time', autospec=True,
                               return_value=samples.STARTED + 5):
            self.operation.enter(operations.FINISHING, destination='x',
                                 failures=2)
        self.assertEqual(
            (operations.FINISHING, samples.STARTED + 5, 'x', 2),
            (self.operation.phase, self.durable.phase_since,
             self.operation.destination, self.durable.failures))
        self.assertEqual([('finishing',)], self.disk.written)

    def test_the_same_phase_again(self):
        self.operation.enter(operations.RUNNING, deadline=5.0)
        self.assertEqual((samples.STARTED, 5.0), (
            self.durable.phase_since, self.durable.deadline))
        self.assertEqual([('running',)], self.disk.written)

    def test_disk_is_full(self):
        """The phase counts in this process all the same."""
        self.disk.error = FULL
        self.operation.enter(operations.STUCK)
        self.assertEqual(operations.STUCK, self.operation.phase)
        warning, = self.operation.warnings
        self.assertIn('no space', warning)

    def test_all_are_listed(self):
        self.assertEqual(7, len(set(operations.PHASES)))
        self.assertIn(self.operation.phase, operations.PHASES)


class ProgressTest(OperationCase):

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(operations.time, 'monotonic',
                                  autospec=True)
        self.clock = patch.start()
        self.addCleanup(patch.stop)

    def at(self, seconds):
        """Set the clock that says when it was written."""
        self.clock.return_value = seconds

    def test_it_is_written_now_and_then(self):
        self.at(1000.0)
        self.operation.show(PROGRESS)
        for seconds, written in ((1000.5, 1), (1004.9, 1), (1005.0, 2),
                                 (1005.5, 2), (1010.0, 3)):
            self.at(seconds)
            self.operation.show(PROGRESS)
            self.assertEqual(written, len(self.disk.written), seconds)

    def test_whatever_is_written_has_it(self):
        self.at(1000.0)
        self.operation.enter(operations.RUNNING)
        self.at(1004.0)
        self.operation.show(PROGRESS)
        self.assertIs(PROGRESS, self.durable.progress)
        # other figures may, the share does not fall
        self.operation.show(report.Progress(0.4, 50.0, 2.0, 7))
        self.assertEqual(report.Progress(0.5, 50.0, 2.0, 7),
                         self.durable.progress)
        self.operation.show(report.Progress(0.6, 5.0, 3.0))
        self.assertEqual(0.6, self.durable.progress.share)
        self.assertEqual(1, len(self.disk.written))
        self.at(1005.0)
        self.operation.show(PROGRESS)
        self.assertEqual(2, len(self.disk.written))

    def test_a_disk_that_is_full_is_not_tried_each_time(self):
        self.disk.error = FULL
        for seconds in (1000.0, 1000.5, 1001.0, 1010.0):
            self.at(seconds)
            self.operation.show(PROGRESS)
        self.assertEqual(2, len(self.operation.warnings))


class FiguresTest(OperationCase):

    def test_last_look_of_each_round_is_kept(self):
        looks = [fakes.look(1, remaining=3), fakes.look(1, remaining=2),
                 fakes.look(2, remaining=1)]
        for one in looks:
            self.operation.see(one)
        self.assertEqual(looks[1:], self.operation.rounds)
        self.assertEqual(looks[2], self.operation.latest)

    def test_what_is_left_of_an_earlier_attempt_is_not_seen(self):
        self.operation.see(fakes.look(rounds=0))
        self.assertIsNone(self.operation.latest)

    def test_endless_rounds(self):
        for number in range(1, 3 * operations.MAX_ROUNDS):
            self.operation.see(fakes.look(number))
        self.assertEqual(operations.MAX_ROUNDS, len(self.operation.rounds))
        self.assertEqual(self.operation.latest, self.operation.rounds[-1])

    def test_first_reason_counts(self):
        self.operation.explain('')
        self.operation.explain('one')
        self.operation.explain('two')
        self.assertEqual('one', self.operation.reason)

    def test_first_outcome_counts(self):
        self.operation.finish('cancelled')
        finished_at = self.operation.finished_at
        self.operation.finish('completed')
        self.assertEqual('cancelled', self.operation.outcome)
        self.assertEqual(finished_at, self.operation.finished_at)

    def test_warnings_are_bounded(self):
        for number in range(100):
            self.operation.warn('counting', ValueError(number))
        self.assertEqual(operations.MAX_WARNINGS,
                         len(self.operation.warnings))
        self.assertEqual('counting: 0', self.operation.warnings[0])

    def test_warning_without_words(self):
        self.operation.warn('counting', ValueError())
        self.assertEqual(['counting: ValueError'], self.operation.warnings)


class ThreadsTest(OperationCase):

    def test_what_is_written_is_of_one_moment(self):
        """While it is written nobody changes it."""
        writing, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        seen = []

        def save(operation):
            seen.append(operation.phase)
            writing.set()
            go_on.wait(30)
            seen.append(operation.phase)

        made = samples.make(save)
        first = threading.Thread(target=made.enter, args=('finishing',))
        second = threading.Thread(target=made.enter, args=('ended',))
        first.start()
        self.assertTrue(writing.wait(30))
        second.start()
        go_on.set()
        for thread in (first, second):
            thread.join(30)
        self.assertEqual(['finishing', 'finishing', 'ended', 'ended'], seen)
