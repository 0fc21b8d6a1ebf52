# SPDX-License-Identifier: Apache-2.0
import dataclasses
import errno
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.operations import errors as operation_errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.tasks import arm
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples
from nova_dedup_migrate.tests.unit.tasks import fakes


def qmp_error(description):
    return errors.QmpError(command='x-dedup-arm', error_class='GenericError',
                           description=description)


BUSY = qmp_error('A migration is running; arm before it starts')


class ArmTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.disk = samples.Disk()
        self.operation = fakes.operation(self.disk)
        self.operation.plan = fakes.some_plan()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.sleep = mock.Mock(spec=[])
        self.task = arm.Arm(self.operation, self.guest, self.sleep)

    @property
    def undo(self):
        return self.operation.durable.undo

    def test_as_planned(self):
        self.task.execute()
        self.guest.arm_dedup.assert_called_once_with(
            copy='shared', resend=True, disks=[
                {'device': 'virtio-disk0', 'copy': 'shared', 'use': True},
                {'device': 'virtio-disk1', 'copy': 'own', 'use': False}],
            fetch_rate=0, fetch_iops=0, lazy=False, defer_redirtied=False,
            records=True, compression=None)
        self.assertEqual([operations.UNDO_ARM], self.undo)

    def test_compression(self):
        self.operation.plan = dataclasses.replace(
            self.operation.plan, strategy=plan.COMPRESS, disks=(),
            compression_threads=3)
        self.task.execute()
        self.guest.arm_dedup.assert_called_once_with(
            copy='shared', resend=True, disks=[], fetch_rate=0, fetch_iops=0,
            lazy=False, defer_redirtied=False, records=False,
            compression={'threads': 3})

    def test_fetching_in_postcopy(self):
        self.operation.plan = dataclasses.replace(
            self.operation.plan, fetch_in_postcopy=True)
        self.task.execute()
        self.assertTrue(self.guest.arm_dedup.call_args.kwargs['lazy'])

    def test_deferring(self):
        self.operation.plan = dataclasses.replace(
            self.operation.plan, defer_redirtied_pages=True)
        self.task.execute()
        self.assertTrue(
            self.guest.arm_dedup.call_args.kwargs['defer_redirtied'])

    def test_undo_log_comes_first(self):
        self.guest.arm_dedup.side_effect = (
            lambda **arguments: self.assertEqual(
                [('requested', operations.UNDO_ARM)], self.disk.written))
        self.task.execute()
        self.guest.arm_dedup.assert_called_once()
        self.assertEqual([], self.operation.warnings)

    def test_disk_is_full(self):
        """What could not be undone after a crash is not done."""
        self.disk.error = operation_errors.StoreUnusable(
            path='/x', reason=OSError(errno.ENOSPC, 'no space'))
        self.task.execute()
        self.guest.arm_dedup.assert_not_called()
        self.guest.disarm_dedup.assert_not_called()
        self.assertEqual([], self.undo)
        self.assertIn('no space', self.operation.reason)

    def test_stock(self):
        for made in None, fakes.some_plan('stock'):
            self.operation.plan = made
            self.task.execute()
        self.guest.arm_dedup.assert_not_called()
        self.assertEqual([], self.disk.written)

    def check_not_armed(self, undo=()):
        self.task.execute()
        self.assertEqual([*undo], self.undo)
        self.assertIn('could not be armed', self.operation.reason)
        # the answer may be what was lost
        self.guest.disarm_dedup.assert_called_once_with()

    def test_refused(self):
        self.guest.arm_dedup.side_effect = qmp_error('no such disk')
        self.check_not_armed()
        self.sleep.assert_not_called()

    def test_timeout(self):
        self.guest.arm_dedup.side_effect = errors.QmpTimeout(
            command='x-dedup-arm', seconds=60)
        self.check_not_armed()

    def test_neither_armed_nor_disarmed(self):
        """Whoever ends the operation tries once more."""
        self.guest.arm_dedup.side_effect = errors.QmpTimeout(
            command='x-dedup-arm', seconds=60)
        self.guest.disarm_dedup.side_effect = errors.QmpTimeout(
            command='x-dedup-disarm', seconds=60)
        self.check_not_armed([operations.UNDO_ARM])

    def test_guest_vanishes(self):
        self.guest.arm_dedup.side_effect = errors.GuestNotRunning(name='x')
        self.guest.disarm_dedup.side_effect = errors.GuestNotRunning(
            name='x')
        self.check_not_armed()
        self.assertEqual(1, len(self.operation.warnings))

    def test_earlier_migration_is_just_over(self):
        self.guest.arm_dedup.side_effect = [BUSY, BUSY, None]
        self.task.execute()
        self.assertEqual([operations.UNDO_ARM], self.undo)
        self.assertEqual(2, self.sleep.call_count)

    def test_earlier_migration_goes_on(self):
        self.guest.arm_dedup.side_effect = BUSY
        with mock.patch.object(arm.time, 'monotonic', autospec=True,
                               side_effect=range(100)):
            self.check_not_armed()
