# SPDX-License-Identifier: Apache-2.0
import io
import threading

from lab import errors
from lab import steps
from nova_dedup_migrate.tests import base


class TestSteps(base.TestCase):

    def setUp(self):
        super().setUp()
        self.out = io.StringIO()
        self.done = []

    def step(self, name, *after, action=None):
        def run():
            if action:
                action()
            self.done.append(name)
        return steps.Step(name, run, after)

    def run_all(self, *plan):
        steps.run(plan, steps.Progress(self.out))

    def test_a_step_comes_after_those_it_needs(self):
        self.run_all(self.step('a'), self.step('b', 'a'),
                     self.step('c', 'a', 'b'))
        self.assertEqual(['a', 'b', 'c'], self.done)

    def test_steps_that_need_nothing_run_at_once(self):
        meeting = threading.Barrier(2, timeout=20)
        self.run_all(self.step('a', action=meeting.wait),
                     self.step('b', action=meeting.wait))
        self.assertEqual({'a', 'b'}, set(self.done))

    def test_each_step_has_its_line(self):
        self.run_all(steps.Step('a', lambda: 'all is well'),
                     steps.Step('b', lambda: None))
        self.assertIn('] a: all is well (0.0 s)\n', self.out.getvalue())
        self.assertIn('] b: done (0.0 s)\n', self.out.getvalue())

    def test_the_first_failure_ends_it(self):
        def fail():
            raise errors.LabError('no luck', '/a.log')

        error = self.assertRaises(
            errors.LabError, self.run_all, self.step('a', action=fail),
            self.step('b', 'a'))
        self.assertEqual('a: no luck', str(error))
        self.assertEqual('/a.log', error.log)
        self.assertEqual([], self.done)
        self.assertIn('] a: failed\n', self.out.getvalue())

    def test_what_runs_may_end_after_a_failure(self):
        failed = threading.Event()

        def fail():
            failed.set()
            raise RuntimeError('no luck')

        self.assertRaises(
            errors.LabError, self.run_all,
            self.step('a', action=lambda: failed.wait(20)),
            self.step('b', action=fail))
        self.assertEqual(['a'], self.done)

    def test_a_mistake_keeps_its_traceback(self):
        self.assertRaises(ZeroDivisionError, self.run_all,
                          self.step('a', action=lambda: 1 / 0))

    def test_a_plan_that_cannot_run_is_refused(self):
        for plan in ([self.step('a', 'b'), self.step('b')],
                     [self.step('a'), self.step('a')]):
            self.assertRaises(ValueError, steps.check, plan)


class TestLastLines(base.TestCase):

    def test_the_end_of_a_log_is_shown(self):
        log = self.temporary_dir() / 'log'
        log.write_text('x' * 10000 + '\n' + 'one\ntwo\n')
        error = errors.LabError('wrong', log)
        self.assertEqual(['one', 'two'], error.last_lines(2))
        self.assertEqual(300, len(error.last_lines()[0]))

    def test_there_may_be_none(self):
        self.assertEqual([], errors.LabError('wrong').last_lines())
        self.assertEqual([], errors.LabError('wrong', '/no').last_lines())
