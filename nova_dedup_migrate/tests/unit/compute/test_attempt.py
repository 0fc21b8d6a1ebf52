# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import libvirt
from nova.virt.libvirt import guest as libvirt_guest

from nova_dedup_migrate.compute import attempt
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
        self.attempt = attempt.Attempt(self.record, self.force_complete)
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
        self.attempt.completing(mock.Mock(spec=[]))()
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

    def test_cancelled_as_nova_saw(self):
        self.recover(migration_status='cancelled').assert_called_once_with(
            'c', 'i', 'd', 'data', migration_status='cancelled')
        self.assertEqual('cancelled', self.record.outcome)

    def test_completed(self):
        post = mock.Mock(spec=[])
        self.attempt.completing(post)(1, two=2)
        post.assert_called_once_with(1, two=2)
        self.assertEqual('completed', self.record.outcome)
