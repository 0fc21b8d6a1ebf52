# SPDX-License-Identifier: Apache-2.0
"""When swaps that were interrupted are tried, and how often."""

import dataclasses
import math

from nova import utils

from nova_dedup_migrate.compute import swap_recovery
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.tests.unit.compute import fakes
from nova_dedup_migrate.tests.unit.compute import test_swap_recovery

SWAP = test_swap_recovery.SWAP


class InterruptedTest(test_swap_recovery.RecoveryCase):

    def setUp(self):
        super().setUp()
        self.kept = operations.SwapOperations(str(self.temporary_dir()))
        self.kept.write(SWAP)
        self.now = 100.0
        clock = self.patched(swap_recovery.time, 'monotonic')
        clock.side_effect = lambda: self.now
        self.forgotten = []

    def interrupted(self):
        return swap_recovery.Interrupted(self.driver, self.kept,
                                         self.forgotten.append)

    def load(self):
        return self.kept.load(fakes.UUID, 'vdb')

    def test_settled(self):
        found = self.interrupted()
        self.assertEqual(SWAP, found.of(fakes.UUID))
        self.assertIsNone(found.of('another'))
        self.kept.request_abort(SWAP)
        found.work()
        self.assert_back()
        self.assertEqual(1, len(self.forgotten))
        self.assertEqual((operations.ENDED, math.inf, None), (
            self.load().phase, found.due, found.of(fakes.UUID)))
        self.assertIn('keeps its volume', self.load().outcome)
        self.assertFalse(self.kept.is_abort_requested(SWAP))
        self.assertEqual(math.inf, self.interrupted().due)

    def test_cinder_is_away_for_a_while(self):
        found = self.interrupted()
        self.cinder.fail = 0, False
        found.work()
        waits = []
        for _ in range(3):
            waits.append(found.due - self.now)
            self.cinder.fail = self.cinder.calls, False
            # not before it is due
            found.work()
            self.now = found.due
            found.work()
        self.assertEqual([5, 10, 20], waits)
        self.assertEqual(operations.MIRRORING, self.load().phase)
        self.assertIsNotNone(found.of(fakes.UUID))
        self.now = found.due
        found.work()
        self.assert_back()
        self.assertEqual(math.inf, found.due)

    def test_cinder_stays_away(self):
        found = self.interrupted()
        tries = 0
        with self.assertLogs(swap_recovery.LOG) as logs:
            while found.due < math.inf:
                self.now = max(self.now, found.due)
                tries += 1
                self.cinder.fail = self.cinder.calls, False
                found.work()
        self.assertEqual(swap_recovery.TRIES, tries)
        self.assertLess(self.now, 100 + 2 * 3600)
        self.assertIn('is not settled: ', logs.output[-1])
        self.assertIn('not tried again until nova-compute starts',
                      logs.output[-1])
        # It does not migrate until an administrator has seen to it.
        self.assertIsNotNone(found.of(fakes.UUID))
        next(self.kept._directory.glob('*.json')).unlink()
        self.assertIsNone(found.of(fakes.UUID))

    def test_what_a_program_cannot_settle_is_tried_once(self):
        self.kept.write(dataclasses.replace(SWAP,
                                            phase=operations.PIVOTING))
        self.ends()
        found = self.interrupted()
        found.work()
        self.assertEqual(math.inf, found.due)
        self.assertEqual(operations.PIVOTING, self.load().phase)

    def test_the_guest_ends_between_two_tries(self):
        """What was learned from it is not lost, also by a restart."""
        for path, phase, check in (
                ('/mnt/new', operations.PIVOTED, self.assert_forward),
                ('/mnt/old', operations.MIRRORING, self.assert_back)):
            self.reset()
            self.driver._host.get_guest.side_effect = None
            self.kept.write(dataclasses.replace(SWAP,
                                                phase=operations.PIVOTING))
            self.runs_from(path)
            found = self.interrupted()
            # as soon as volumes are changed
            self.cinder.fail = 2, False
            found.work()
            self.assertEqual(phase, self.load().phase)
            self.cinder.fail = None
            self.ends()
            self.interrupted().work()
            check()

    def test_nova_works_on_the_instance(self):
        found = self.interrupted()
        utils.synchronized(fakes.UUID)(found.work)()
        self.assert_untouched()
        self.driver._host.get_guest.assert_not_called()
        self.now = found.due
        found.work()
        self.assert_back()

    def test_the_disk_has_been_swapped_since(self):
        found = self.interrupted()
        newer = dataclasses.replace(SWAP, began=5.0, new_volume='newer')
        self.kept.write(newer)
        self.assertIsNone(found.of(fakes.UUID))
        found.work()
        self.assert_untouched()
        self.assertEqual(newer, self.load())
        self.assertEqual(math.inf, found.due)
