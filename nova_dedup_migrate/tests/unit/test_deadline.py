# SPDX-License-Identifier: Apache-2.0
"""Work waits its turn, and what hangs is left behind."""

import concurrent.futures
import threading
from unittest import mock

from nova_dedup_migrate import deadline
from nova_dedup_migrate import errors
from nova_dedup_migrate.tests import base


class DeadlineTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.runner = deadline.Runner('storage', 3)
        self.done = threading.Event()
        self.addCleanup(self.done.set)

    def hang(self, number, runner=None):
        for _ in range(number):
            self.assertRaises(deadline.Late, (runner or self.runner).run,
                              0.0, self.done.wait, 30)

    def test_result(self):
        self.assertEqual(3, self.runner.run(30.0, max, 3, 2))
        self.assertEqual(-3, self.runner.run(30.0, max, 2, -3, key=abs))

    def test_error(self):
        self.assertRaises(ZeroDivisionError, self.runner.run, 30.0,
                          lambda: 1 // 0)

    def test_thread_that_ends_itself(self):
        def leave():
            raise SystemExit(3)

        self.assertRaises(SystemExit, self.runner.run, 30.0, leave)

    def test_time_out_of_the_work_itself(self):
        def fail():
            raise TimeoutError('mine')

        error = self.assertRaises(TimeoutError, self.runner.run, 30.0, fail)
        self.assertEqual('mine', str(error))

    def test_late(self):
        error = self.assertRaises(deadline.Late, self.runner.run, 0.01,
                                  self.done.wait, 30)
        self.assertEqual('storage did not answer within 0.01 s', str(error))
        self.assertIsInstance(error, errors.DedupMigrateError)

    def test_no_time_left(self):
        self.assertRaises(deadline.Late, self.runner.run, -5.0,
                          self.done.wait, 30)

    def test_more_callers_than_threads(self):
        """40 callers, 16 threads: all get their answers."""
        runner = deadline.Runner('storage', 16)
        release = threading.Event()
        self.addCleanup(release.set)
        begun = []

        def work(number):
            begun.append(number)
            release.wait(30)
            return number

        with concurrent.futures.ThreadPoolExecutor(40) as callers:
            answers = callers.map(
                lambda number: runner.run(60.0, work, number), range(40))
            self.eventually(
                lambda: (len(begun), len(runner._waiting)) == (16, 24),
                '16 run and the others wait')
            release.set()
            self.assertEqual(list(range(40)), list(answers))

    def test_all_threads_hang(self):
        """16 hang for ever: the 17th fails at its deadline."""
        runner = deadline.Runner('storage', 16)
        self.hang(16, runner)
        begun = []
        error = self.assertRaises(deadline.Busy, runner.run, 0.01,
                                  begun.append, 1)
        self.assertEqual([], begun)
        self.assertEqual((16, 0), (error.hanging, error.running))
        self.assertIn('16 earlier requests hang', str(error))
        self.assertIn('Check that storage answers', str(error))

    def test_threads_that_hang_do_not_take_turns_from_others(self):
        self.hang(2)
        at_once = threading.Barrier(3)
        with concurrent.futures.ThreadPoolExecutor(3) as callers:
            for _ in callers.map(lambda _: self.runner.run(
                    30.0, at_once.wait, 30), range(3)):
                pass

    def test_it_goes_on_when_one_returns(self):
        threads = threading.active_count()
        self.hang(3)
        with concurrent.futures.ThreadPoolExecutor(1) as callers:
            answer = callers.submit(self.runner.run, 30.0, max, 1, 2)
            self.eventually(lambda: self.runner._waiting, 'it waits')
            self.done.set()
            self.assertEqual(2, answer.result(30))
        self.eventually(lambda: threading.active_count() <= threads,
                        'the threads end')
        self.assertEqual((0, 0), (self.runner._running,
                                  self.runner._hanging))

    def test_first_come_first_served(self):
        runner = deadline.Runner('storage', 1)
        order = []
        with concurrent.futures.ThreadPoolExecutor(5) as callers:
            callers.submit(runner.run, 30.0, self.done.wait, 30)
            self.eventually(lambda: runner._running, 'it runs')
            for number in range(4):
                callers.submit(runner.run, 30.0, order.append, number)
                self.eventually(lambda n=number + 1: len(
                    runner._waiting) == n, 'it waits')
            self.done.set()
        self.assertEqual([0, 1, 2, 3], order)

    def test_whoever_gave_up_is_not_served(self):
        self.hang(3)
        begun = []
        self.assertRaises(deadline.Busy, self.runner.run, 0.01,
                          begun.append, 1)
        self.done.set()
        self.assertEqual(2, self.runner.run(30.0, max, 1, 2))
        self.assertEqual([], begun)

    def test_finished_at_the_last_moment(self):
        """The time is over, and the answer is there before it is said."""
        class Slow(concurrent.futures.Future):
            def result(self, timeout=None):
                if timeout is not None:
                    super().result(30)
                    self.done = lambda: False
                    raise concurrent.futures.TimeoutError()
                return super().result()

        with mock.patch.object(deadline.concurrent.futures, 'Future', Slow):
            self.assertEqual(2, self.runner.run(30.0, max, 1, 2))
        self.assertEqual(0, self.runner._hanging)

    def test_no_more_threads(self):
        with mock.patch.object(threading.Thread, 'start', autospec=True,
                               side_effect=RuntimeError("can't start")):
            self.assertRaises(RuntimeError, self.runner.run, 30.0, max, 1, 2)
        self.assertEqual(2, self.runner.run(30.0, max, 1, 2))
