# SPDX-License-Identifier: Apache-2.0
"""A swap that is under way."""

from unittest import mock

from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.swaps import running
from nova_dedup_migrate.tests import base

SWAP = operations.Swap('instance', 'vdb', 'old', 'new', '')


class RunningTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.kept = operations.SwapOperations(str(self.temporary_dir()))
        self.now = 1000.0
        self.kept.request_abort(SWAP)
        self.running = running.RunningSwap(self.kept, SWAP,
                                           lambda: self.now)

    def load(self):
        return self.kept.load('instance', 'vdb')

    def fill(self, done):
        self.running.see_fill(rebuild.Progress(
            done, 100, done, {'backup': done << 15, 'zero': 7}))

    def test_begun(self):
        self.assertEqual((operations.BEGUN, 1000.0),
                         (self.load().phase, self.load().began))
        # a request for an earlier one
        self.running.check()

    def test_each_phase_is_written(self):
        self.running.enter(operations.FILLING, path='/x')
        self.fill(50)
        self.running.enter(operations.MIRRORING)
        self.assertEqual((operations.MIRRORING, '/x', 0, 50 << 15), (
            self.load().phase, self.load().path, self.load().done,
            self.load().sources['backup']))
        with mock.patch.object(self.kept, 'write', side_effect=OSError):
            self.assertRaises(OSError, self.running.enter,
                              operations.PIVOTING)

    def test_progress_is_written_now_and_then(self):
        self.running.enter(operations.FILLING)
        with (mock.patch.object(self.kept, 'write',
                                wraps=self.kept.write) as write,
              self.assertLogs(running.LOG) as logs):
            for number in range(100):
                self.now += 0.5
                self.fill(number)
        # Of 50 seconds.
        self.assertEqual(16, write.call_count)
        self.assertEqual(5, len(logs.output))
        self.assertIn('filling, 3244032 of 3276800 bytes after 50 s',
                      logs.output[-1])
        self.assertEqual(100 << 15, self.load().total)

    def test_the_mirrors_progress(self):
        self.running.enter(operations.FILLING)
        self.fill(50)
        self.running.enter(operations.MIRRORING)
        self.now += running.WRITE
        self.running.see_mirror(3, 4)
        self.assertEqual((3, 4, {'backup': 50 << 15, 'zero': 7, 'volume': 3}),
                         (self.load().done, self.load().total,
                          self.load().sources))

    def test_progress_that_cannot_be_written(self):
        self.now += running.WRITE
        with mock.patch.object(self.kept, 'write', side_effect=OSError):
            self.fill(1)
            self.running.over('copied')

    def test_aborted(self):
        self.fill(1)
        self.kept.request_abort(SWAP)
        self.assertRaises(errors.Aborted, self.fill, 2)
        self.assertRaises(errors.Aborted, self.running.check)

    def test_over(self):
        self.kept.request_abort(SWAP)
        self.now += 7
        self.running.over('copied', phase=operations.PIVOTED, size=3)
        self.assertEqual((operations.PIVOTED, 'copied', 7.0, 3), (
            self.load().phase, self.load().outcome, self.load().seconds,
            self.load().size))
        self.assertFalse(self.kept.is_abort_requested(SWAP))
