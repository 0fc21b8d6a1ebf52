# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import libvirt
from nova.virt.libvirt import guest as libvirt_guest
import oslo_messaging

from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.operations import session
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples

INSTANCE = mock.sentinel.instance
DATA = mock.sentinel.data


def libvirt_error(code):
    error = libvirt.libvirtError('test')
    error.err = (code, libvirt.VIR_FROM_QEMU, 'test', 2, '', '', '', -1, -1)
    return error


ABORTED = libvirt_error(libvirt.VIR_ERR_OPERATION_ABORTED)
FAILED = libvirt_error(libvirt.VIR_ERR_OPERATION_FAILED)


class SessionCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.renew()

    def renew(self):
        """Begin with a new session."""
        self.disk = samples.Disk()
        self.operation = samples.make(self.disk.save,
                                      phase=operations.PREPARING)
        self.post = mock.Mock(spec=[])
        self.recover_method = mock.Mock(spec=[])
        self.force_complete = mock.Mock(spec=[])
        self.forget_guest = mock.Mock(spec=[])
        self.session = session.Session(
            self.operation, INSTANCE, DATA, self.post, self.recover_method,
            self.force_complete, self.forget_guest)
        self.guest = mock.create_autospec(libvirt_guest.Guest, instance=True)

    @property
    def requests(self):
        return self.operation.durable.requests

    def recover(self, **kwargs):
        """Nova's monitor believes that the guest has stayed."""
        # what it hands over is wrapped, and not what Nova is to get
        self.session.recover('c', 'wrapped', 'd', 'wrapped', **kwargs)

    def check_recovered(self, status):
        self.recover_method.assert_called_once_with(
            'c', INSTANCE, 'd', DATA, migration_status=status)
        self.assertEqual(status, self.operation.outcome)

    def complete(self):
        """Nova's monitor believes that the guest has arrived."""
        self.session.operation_ended()
        self.session.complete('c', 'wrapped', 'd', True, 'wrapped')


class RequestsTest(SessionCase):

    def test_wanted(self):
        self.assertFalse(self.session.begun)
        self.assertTrue(self.session.begin())
        self.assertTrue(self.session.begun)
        self.assertEqual([('running',)], self.disk.written)

    def test_abort_before_it_begins(self):
        self.assertTrue(self.session.defer(operations.ABORT))
        self.assertFalse(self.session.begin())
        self.assertFalse(self.session.begun)
        self.recover()
        self.check_recovered('cancelled')

    def test_deferred_requests_are_written(self):
        """They count after a crash, too."""
        self.session.defer(operations.FORCE_COMPLETE)
        self.session.defer(operations.ABORT)
        self.assertEqual([operations.FORCE_COMPLETE, operations.ABORT],
                         self.requests)
        self.assertEqual(2 * [('preparing',)], self.disk.written)

    def test_deferring_does_not_depend_on_the_disk(self):
        self.disk.error = OSError('full')
        self.assertTrue(self.session.defer(operations.ABORT))
        self.assertFalse(self.session.begin())

    def test_abort_before_there_is_a_job(self):
        self.assertTrue(self.session.begin())
        self.assertTrue(self.session.defer(operations.ABORT))
        self.session.see_job(self.guest)
        self.session.see_job(self.guest)
        self.guest.abort_job.assert_called_once_with()

    def test_abort_that_libvirt_refuses(self):
        self.session.begin()
        self.session.defer(operations.ABORT)
        self.guest.abort_job.side_effect = libvirt_error(
            libvirt.VIR_ERR_OPERATION_INVALID)
        self.session.see_job(self.guest)

    def test_force_complete_before_there_is_a_job(self):
        self.session.defer(operations.FORCE_COMPLETE)
        self.assertTrue(self.session.begin())
        self.session.see_job(self.guest)
        self.force_complete.assert_called_once_with()
        self.guest.abort_job.assert_not_called()

    def test_abort_counts_for_more(self):
        for requests in ((operations.FORCE_COMPLETE, operations.ABORT),
                         (operations.ABORT, operations.FORCE_COMPLETE)):
            self.renew()
            self.session.begin()
            for request in requests:
                self.session.defer(request)
            self.session.see_job(self.guest)
            self.guest.abort_job.assert_called_once_with()
            self.force_complete.assert_not_called()

    def test_nothing_was_requested(self):
        self.session.begin()
        self.session.see_job(self.guest)
        self.guest.abort_job.assert_not_called()
        self.force_complete.assert_not_called()

    def test_request_once_there_is_a_job(self):
        self.session.begin()
        self.session.see_job(self.guest)
        self.assertFalse(self.session.defer(operations.ABORT))
        self.assertEqual([], self.requests)

    def test_request_when_it_is_over(self):
        self.session.begin()
        self.complete()
        self.assertFalse(self.session.defer(operations.ABORT))

    def test_a_request_does_not_turn_the_phase_back(self):
        """It comes in a thread of its own, just as Nova's begins."""
        enter = self.operation.enter
        locked = []

        def look(phase, **values):
            locked.append(self.session._lock.locked())
            enter(phase, **values)

        with mock.patch.object(self.operation, 'enter', autospec=True,
                               side_effect=look):
            self.session.defer(operations.FORCE_COMPLETE)
            self.session.begin()
        self.assertEqual([True, True], locked)


class RecoverTest(SessionCase):

    def test_failed(self):
        self.session.operation_failed(FAILED)
        self.recover()
        self.check_recovered('failed')
        self.assertIs(FAILED, self.operation.failure)
        self.assertTrue(self.session.settled)

    def test_cancelled_by_libvirt(self):
        """Nova's monitor has not seen it, and believes it has failed."""
        self.session.operation_failed(ABORTED)
        self.recover()
        self.check_recovered('cancelled')

    def test_cancelled_as_nova_saw(self):
        self.recover(migration_status='cancelled')
        self.check_recovered('cancelled')

    def test_the_phase_is_written_first(self):
        self.recover_method.side_effect = (
            lambda *args, **kwargs: self.assertEqual(
                [('rolling back',)], self.disk.written))
        self.recover()
        self.assertEqual([], self.operation.warnings)

    def test_nothing_is_left_there_if_libvirt_was_not_called(self):
        self.recover()
        self.forget_guest.assert_not_called()

    def test_what_is_left_there_is_forgotten_first(self):
        """The destination is done when libvirt's call returns."""
        self.assertTrue(self.session.call())
        order = mock.Mock(spec=[])
        order.wait = mock.Mock(spec=[])
        order.forget, order.roll_back = self.forget_guest, (
            self.recover_method)
        for name, one in (('forget', self.forget_guest),
                          ('roll_back', self.recover_method)):
            order.attach_mock(one, name)
        with mock.patch.object(self.session._operated, 'wait',
                               order.wait):
            self.recover()
        self.assertEqual(['wait', 'forget', 'roll_back'],
                         [call[0] for call in order.mock_calls])
        self.forget_guest.assert_called_once_with(self.operation)

    def test_libvirt_does_not_end(self):
        self.session.call()
        with mock.patch.object(session, '_END_S', 0):
            self.recover()
        self.check_recovered('failed')
        self.forget_guest.assert_called_once_with(self.operation)

    def test_a_step_fails(self):
        self.recover_method.side_effect = (
            oslo_messaging.MessageDeliveryFailure('late'))
        self.recover()
        self.assertFalse(self.session.settled)
        self.assertEqual((1, operations.ROLLING_BACK), (
            self.operation.durable.failures, self.operation.phase))
        self.assertIn('late', self.operation.warnings[0])
        # recovery repeats it with that
        self.assertEqual('failed', self.operation.outcome)


class CompleteTest(SessionCase):

    def test_completed(self):
        self.complete()
        self.post.assert_called_once_with('c', INSTANCE, 'd', True, DATA)
        self.assertEqual('completed', self.operation.outcome)
        self.assertTrue(self.session.settled)
        self.assertEqual([('finishing',)], self.disk.written)

    def test_a_step_fails(self):
        for error in (oslo_messaging.MessagingTimeout('late'),
                      KeyError('late')):
            self.renew()
            self.post.side_effect = error
            self.complete()
            self.assertFalse(self.session.settled)
            self.assertEqual((1, operations.FINISHING, 'completed'), (
                self.operation.durable.failures, self.operation.phase,
                self.operation.outcome))
            self.assertIn('late', self.operation.warnings[0])
            self.recover_method.assert_not_called()

    def check_left_to_recovery(self):
        self.post.assert_not_called()
        self.recover_method.assert_not_called()
        self.forget_guest.assert_not_called()
        self.assertIsNone(self.operation.outcome)
        self.assertFalse(self.session.settled)
        # only what it was before is certain
        self.assertEqual([], self.disk.written)

    def test_libvirt_failed(self):
        """The guest has vanished, and may as well have died."""
        for error in (FAILED, ABORTED, KeyError('before the call')):
            self.renew()
            self.session.operation_failed(error)
            self.complete()
            self.check_left_to_recovery()

    def test_libvirt_does_not_return(self):
        with mock.patch.object(session, 'OPERATION_S', 0):
            self.session.complete('c', 'wrapped', 'd', True, 'wrapped')
        self.check_left_to_recovery()

    def test_the_operation_is_waited_for(self):
        """Its error may come after the monitor has seen the guest gone."""
        with mock.patch.object(
                self.session._operated, 'wait', autospec=True,
                side_effect=lambda seconds: (
                    self.session.operation_failed(FAILED), True)[1]):
            self.session.complete('c', 'wrapped', 'd', True, 'wrapped')
        self.check_left_to_recovery()


class CallTest(SessionCase):

    def test_libvirt_may_be_called(self):
        self.assertTrue(self.session.call())

    def test_not_when_it_is_over(self):
        """Nova's thread has failed, and recovery may be rolling back."""
        self.session.fail(KeyError('x'))
        self.assertFalse(self.session.call())
        self.assertFalse(self.session.defer(operations.ABORT))

    def test_nor_when_it_was_rolled_back(self):
        self.recover()
        self.assertFalse(self.session.call())

    def test_error_in_novas_thread(self):
        self.session.fail(KeyError('x'))
        self.assertIsNone(self.operation.outcome)
        self.assertFalse(self.session.settled)
        self.assertEqual(["running Nova's live migration: 'x'"],
                         self.operation.warnings)
