# SPDX-License-Identifier: Apache-2.0
import threading
from unittest import mock

import libvirt
from nova import exception
from nova.virt.libvirt import guest as libvirt_guest
import oslo_messaging

from nova_dedup_migrate.compute import attempt
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.tasks import record
from nova_dedup_migrate.tests import base


def libvirt_error(code):
    error = libvirt.libvirtError('test')
    error.err = (code, libvirt.VIR_FROM_QEMU, 'test', 2, '', '', '', -1, -1)
    return error


class AttemptTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = record.MigrationRecord(
            'migration', 'instance', 'here', 'there', 'auto', 'nova.conf')
        self.force_complete = mock.Mock(spec=[])
        self.state_there = mock.Mock(spec=[])
        self.forget_there = mock.Mock(spec=[])
        self.attempt = attempt.Attempt(self.record, self.force_complete,
                                       self.state_there,
                                       self.forget_there)
        self.guest = mock.create_autospec(libvirt_guest.Guest, instance=True)

    def recover(self, **kwargs):
        method = mock.Mock(spec=[])
        self.attempt.recovering(method)('c', 'i', 'd', 'data', **kwargs)
        return method

    def test_wanted(self):
        self.assertFalse(self.attempt.begun)
        self.assertTrue(self.attempt.begin())
        self.assertTrue(self.attempt.begun)

    def test_abort_before_it_begins(self):
        self.assertTrue(self.attempt.wish('abort'))
        self.assertFalse(self.attempt.begin())
        self.recover().assert_called_once_with(
            'c', 'i', 'd', 'data', migration_status='cancelled')
        self.assertEqual('cancelled', self.record.outcome)

    def test_abort_before_there_is_a_job(self):
        self.assertTrue(self.attempt.begin())
        self.assertTrue(self.attempt.wish('abort'))
        self.attempt.job_seen(self.guest)
        self.attempt.job_seen(self.guest)
        self.guest.abort_job.assert_called_once_with()

    def test_abort_that_libvirt_refuses(self):
        self.attempt.begin()
        self.attempt.wish('abort')
        self.guest.abort_job.side_effect = libvirt_error(
            libvirt.VIR_ERR_OPERATION_INVALID)
        self.attempt.job_seen(self.guest)

    def test_force_complete_before_there_is_a_job(self):
        self.attempt.wish('force-complete')
        self.assertTrue(self.attempt.begin())
        self.attempt.job_seen(self.guest)
        self.force_complete.assert_called_once_with()
        self.guest.abort_job.assert_not_called()

    def test_wish_once_there_is_a_job(self):
        self.attempt.begin()
        self.attempt.job_seen(self.guest)
        self.assertFalse(self.attempt.wish('abort'))

    def test_wish_when_it_is_over(self):
        self.attempt.begin()
        self.complete()
        self.assertFalse(self.attempt.wish('abort'))

    def test_cancelled_by_libvirt(self):
        self.attempt.operation_failed(
            libvirt_error(libvirt.VIR_ERR_OPERATION_ABORTED))
        self.recover().assert_called_once_with(
            'c', 'i', 'd', 'data', migration_status='cancelled')

    def test_failed(self):
        self.attempt.operation_failed(
            libvirt_error(libvirt.VIR_ERR_OPERATION_FAILED))
        self.recover().assert_called_once_with('c', 'i', 'd', 'data')
        self.assertEqual('failed', self.record.outcome)

    def test_what_is_left_there_is_forgotten_first(self):
        self.attempt.enter()
        self.attempt.operation_failed(
            libvirt_error(libvirt.VIR_ERR_OPERATION_FAILED))
        events = []
        self.forget_there.side_effect = (
            lambda context: events.append(('forget', context)))
        timer = threading.Timer(0.05, lambda: (
            events.append('ended'), self.attempt.operation_ended()))
        timer.start()
        self.addCleanup(timer.cancel)
        self.attempt.recovering(lambda *args: events.append('roll back'))(
            'c', 'i', 'd', 'data')
        self.assertEqual(['ended', ('forget', 'c'), 'roll back'], events)

    def test_nothing_is_left_where_libvirt_was_not_told(self):
        self.recover()
        self.forget_there.assert_not_called()

    def test_libvirt_does_not_end(self):
        self.attempt.enter()
        with mock.patch.object(attempt, '_END_S', 0):
            self.recover().assert_called_once_with('c', 'i', 'd', 'data')
        self.forget_there.assert_called_once_with('c')

    def test_cancelled_as_nova_saw(self):
        self.recover(migration_status='cancelled').assert_called_once_with(
            'c', 'i', 'd', 'data', migration_status='cancelled')
        self.assertEqual('cancelled', self.record.outcome)

    def complete(self):
        """Nova's monitor believes that the guest has arrived."""
        post, recover = mock.Mock(spec=[]), mock.Mock(spec=[])
        self.attempt.operation_ended()
        instance = mock.sentinel.instance
        self.attempt.completing(post, self.attempt.recovering(recover))(
            'c', instance, 'd', True, 'data')
        if recover.called:
            recover.assert_called_once_with('c', instance, 'd', 'data')
            post.assert_not_called()
            return 'recover'
        post.assert_called_once_with('c', instance, 'd', True, 'data')
        return 'post'

    def test_completed(self):
        self.assertEqual('post', self.complete())
        self.assertEqual('completed', self.record.outcome)
        self.state_there.assert_not_called()

    def post_fails(self, error):
        """The guest has arrived, and then Nova has an error."""
        self.attempt.operation_ended()
        recover = mock.Mock(spec=[])
        self.attempt.completing(mock.Mock(spec=[], side_effect=error),
                                recover)('c', 'i', 'd', True, 'data')
        recover.assert_not_called()

    def test_nobody_takes_note_that_it_has_arrived(self):
        self.assertFalse(self.attempt.unsettled)
        self.post_fails(oslo_messaging.MessagingTimeout('late'))
        self.assertTrue(self.attempt.unsettled)
        self.assertIn('late', self.record.warnings[0])
        self.assertEqual('completed', self.record.outcome)

    def test_libvirt_there_is_away(self):
        self.post_fails(exception.HypervisorUnavailable())
        self.assertTrue(self.attempt.unsettled)

    def test_other_errors_pass(self):
        self.assertRaises(exception.NovaException, self.post_fails,
                          exception.NovaException('x'))
        self.assertFalse(self.attempt.unsettled)

    def test_nobody_takes_note_that_it_has_stayed(self):
        self.attempt.operation_failed(
            libvirt_error(libvirt.VIR_ERR_OPERATION_ABORTED))
        method = mock.Mock(
            spec=[], side_effect=oslo_messaging.MessageDeliveryFailure())
        self.attempt.recovering(method)('c', 'i', 'd', 'data')
        self.assertTrue(self.attempt.unsettled)
        self.assertEqual('cancelled', self.attempt.failure)

    def failed(self, *states):
        self.attempt.operation_failed(
            libvirt_error(libvirt.VIR_ERR_OPERATION_FAILED))
        self.state_there.side_effect = states

    def test_completed_though_libvirt_failed(self):
        self.failed('here')
        self.assertEqual('post', self.complete())
        self.assertEqual('completed', self.record.outcome)
        self.state_there.assert_called_once_with('c')

    def test_the_guest_died_here(self):
        self.failed('none')
        self.assertEqual('recover', self.complete())
        self.assertEqual('failed', self.record.outcome)

    def test_the_destination_has_not_decided(self):
        with mock.patch.object(attempt, '_INTERVAL_S', 0):
            self.failed('arriving', 'arriving', 'none')
            self.assertEqual('recover', self.complete())

    def test_the_destination_does_not_decide(self):
        with mock.patch.object(attempt, 'ARRIVAL_S', 0):
            self.failed('arriving')
            self.assertEqual('post', self.complete())

    def test_the_destination_does_not_say(self):
        self.failed(errors.AgentUnavailable('there', 'no answer'))
        self.assertEqual('post', self.complete())
        self.assertIn('no answer', self.record.warnings[0])

    def test_the_operation_is_waited_for(self):
        """Its error may come after the monitor has seen the guest gone."""
        self.failed('none')
        self.state_there.side_effect = None
        failure, self.record.failure = self.record.failure, None

        def end():
            self.record.failure = failure
            self.state_there.return_value = 'none'
            self.attempt.operation_ended()

        timer = threading.Timer(0.05, end)
        timer.start()
        self.addCleanup(timer.cancel)
        recover = mock.Mock(spec=[])
        self.attempt.completing(mock.Mock(spec=[]), recover)(
            'c', mock.sentinel.instance, 'd', True, 'data')
        recover.assert_called_once_with('c', mock.sentinel.instance, 'd',
                                        'data')
