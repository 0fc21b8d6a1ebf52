# SPDX-License-Identifier: Apache-2.0
"""Work that hangs is left behind."""

import threading

from nova_dedup_migrate import deadline
from nova_dedup_migrate.tests import base


class DeadlineTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.runner = deadline.Runner('storage', 3)

    def test_result(self):
        self.assertEqual(3, self.runner.run(30.0, max, 3, 2))
        self.assertEqual(-3, self.runner.run(30.0, max, 2, -3, key=abs))

    def test_error(self):
        self.assertRaises(ZeroDivisionError, self.runner.run, 30.0,
                          lambda: 1 // 0)

    def test_time_out_of_the_work_itself(self):
        def fail():
            raise TimeoutError('mine')

        error = self.assertRaises(TimeoutError, self.runner.run, 30.0, fail)
        self.assertEqual('mine', str(error))

    def test_late(self):
        done = threading.Event()
        self.addCleanup(done.set)
        error = self.assertRaises(deadline.Late, self.runner.run, 0.01,
                                  done.wait, 30)
        self.assertIn('0.01 s', str(error))

    def test_no_time_left(self):
        done = threading.Event()
        self.addCleanup(done.set)
        self.assertRaises(deadline.Late, self.runner.run, -5.0, done.wait, 30)

    def test_limit_of_what_hangs(self):
        done = threading.Event()
        threads = threading.active_count()
        for _ in range(3):
            self.assertRaises(deadline.Late, self.runner.run, 0.0,
                              done.wait, 30)
        error = self.assertRaises(deadline.Late, self.runner.run, 30.0, max,
                                  1, 2)
        self.assertIn('hang already', str(error))
        done.set()
        self.eventually(lambda: threading.active_count() <= threads,
                        'the threads end')
        self.assertEqual(2, self.runner.run(30.0, max, 1, 2))
