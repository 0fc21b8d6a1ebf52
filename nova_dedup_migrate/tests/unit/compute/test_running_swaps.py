# SPDX-License-Identifier: Apache-2.0
"""Swaps are recorded from their first moment on, and may be aborted."""

from unittest import mock

from nova import exception
from nova import objects

from nova_dedup_migrate.compute import swap_recovery
from nova_dedup_migrate.compute import volume_swaps
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.tests.unit.compute import test_volume_swaps

OLD, NEW = test_volume_swaps.OLD, test_volume_swaps.NEW


class RunningSwapTest(test_volume_swaps.FillingCase):

    def test_the_record_comes_first(self):
        """Before the reader is waited for, and Nova connects anything."""
        seen = []
        unread = self.swaps._turns.unread

        def waiting(*args):
            seen.append(self.operation())
            return unread(*args)

        with mock.patch.object(self.swaps._turns, 'unread', waiting):
            with self.named():
                self.assertEqual(seen, [self.operation()])
        (found,) = seen
        self.assertEqual((operations.BEGUN, OLD, NEW, ''), (
            found.phase, found.old_volume, found.new_volume, found.path))

    def test_a_connection_that_fails(self):
        with self.assertRaises(OSError), self.named():
            raise OSError('no such target')
        self.assertEqual((operations.BEGUN, 'failed: no such target'), (
            self.operation().phase, self.operation().outcome))

    def test_without_a_record_nova_copies_all(self):
        with mock.patch.object(operations.SwapOperations, 'write',
                               autospec=True, side_effect=OSError('full')):
            with self.swapping() as guest:
                self.assertIs(self.nova_guest, guest)
        self.fill.assert_not_called()

    def test_a_record_that_cannot_be_written_any_more(self):
        """What is true would not be known later."""
        write = operations.SwapOperations.write
        for phase in operations.FILLING, operations.MIRRORING:
            def fail(kept, swap, phase=phase):
                if swap.phase == phase and not swap.outcome:
                    raise OSError('full')
                write(kept, swap)

            self.begin()
            with mock.patch.object(operations.SwapOperations, 'write', fail):
                with self.assertRaisesRegex((
                        exception.VolumeRebaseFailed, OSError), 'full'):
                    with self.swapping() as guest:
                        guest.get_block_device('vdb').copy('xml')
            self.nova_guest.get_block_device.return_value.copy \
                .assert_not_called()

    def request_abort(self):
        self.kept.request_abort(self.operation())

    def assert_aborted(self):
        """Nova is to clean up, and nobody uses the watch."""
        self.assertRegex(self.operation().outcome, 'failed: .* was aborted')
        self.assertNotIn(self.operation().phase, (operations.PIVOTED,
                                                  operations.ENDED))
        self.assertFalse(self.kept.is_abort_requested(self.operation()))
        self.swaps.require_no_swap(self.instance)

    def test_aborted_before_the_fill(self):
        with self.assertRaisesRegex(exception.VolumeRebaseFailed, 'aborted'):
            with self.named():
                self.request_abort()
                with self.swaps.filling(self.nova_guest, 'vdb', self.conf):
                    self.fail('Nova has copied')
        self.fill.assert_not_called()
        self.assert_aborted()

    def test_aborted_in_the_fill(self):
        def fill_some(*_, progress):
            progress(rebuild.Progress(1, 2, 1, {'backup': 32768}))
            self.request_abort()
            progress(rebuild.Progress(2, 2, 2, {'backup': 65536}))
            self.fail('it was filled')

        self.fill.side_effect = fill_some
        with self.assertRaisesRegex(exception.VolumeRebaseFailed, 'aborted'):
            with self.swapping():
                self.fail('Nova has copied')
        self.assert_aborted()
        self.assertEqual((32768, {'backup': 32768}), (
            self.operation().done, self.operation().sources))
        self.assertIn(('drop', self.record.token), self.guest.calls)

    def test_aborted_when_the_fill_fails(self):
        """Nova does not copy instead."""
        def fail(*_, **__):
            self.request_abort()
            raise errors.NotFillable(reason='why')

        self.fill.side_effect = fail
        with self.assertRaisesRegex(exception.VolumeRebaseFailed, 'aborted'):
            with self.swapping():
                self.fail('Nova has copied')
        self.assert_aborted()

    def test_aborted_in_the_mirror(self):
        device = self.nova_guest.get_block_device.return_value
        with self.assertRaisesRegex(errors.Aborted, 'aborted'):
            with self.swapping() as guest:
                mirror = guest.get_block_device('vdb')
                mirror.copy('xml')
                self.assertEqual(operations.MIRRORING,
                                 self.operation().phase)
                self.request_abort()
                mirror.is_job_complete()
        device.abort_job.assert_called_once_with()
        self.assert_aborted()

    def test_what_is_not_settled_yet_is_tried_again(self):
        with self.swapping():
            pass
        settle = self.patched(swap_recovery, 'settle',
                              side_effect=(RuntimeError, None))
        self.patched(objects.Instance, 'get_by_uuid',
                     return_value=self.instance)
        waits = []

        def wait(timeout):
            waits.append(timeout)
            for one in self.swaps._interrupted._left:
                one.due = 0.0
            return len(waits) == 2

        with mock.patch.object(self.swaps._stopped, 'wait', wait):
            self.work()
        self.assertEqual(2, settle.call_count)
        self.assertLessEqual(waits[0], swap_recovery.RETRY)
        self.assertEqual(operations.ENDED, self.operation().phase)
        self.swaps.require_no_swap(self.instance)

    def test_interrupted_swaps_are_known_from_the_start(self):
        """Before Nova takes a request."""
        with self.swapping():
            pass
        with mock.patch.object(volume_swaps.threading, 'Thread',
                               autospec=True) as thread:
            self.swaps.start()
        thread.return_value.start.assert_called_once_with()
        self.assertRaises(exception.MigrationPreCheckError,
                          self.swaps.require_no_swap, self.instance)
