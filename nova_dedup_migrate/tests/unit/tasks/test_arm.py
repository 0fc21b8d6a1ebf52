# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tasks import arm
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.tasks import fakes


def qmp_error(description):
    return errors.QmpError(command='x-dedup-arm', error_class='GenericError',
                           description=description)


BUSY = qmp_error('A migration is running; arm before it starts')


class ArmTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = fakes.record()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.sleep = mock.Mock(spec=[])
        self.task = arm.Arm(self.record, self.guest, self.sleep)

    def test_as_planned(self):
        self.task.execute(fakes.some_plan())
        self.guest.arm_dedup.assert_called_once_with(
            copy='shared', resend=True, disks=[
                {'device': 'virtio-disk0', 'copy': 'shared', 'use': True},
                {'device': 'virtio-disk1', 'copy': 'own', 'use': False}])
        self.assertTrue(self.record.armed)

    def test_stock(self):
        for plan in None, fakes.some_plan('stock'):
            self.task.execute(plan)
        self.guest.arm_dedup.assert_not_called()
        self.assertFalse(self.record.armed)

    def check_not_armed(self):
        self.task.execute(fakes.some_plan())
        self.assertFalse(self.record.armed)
        self.assertIn('could not be armed', self.record.reason)
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

    def test_guest_vanishes(self):
        self.guest.arm_dedup.side_effect = errors.GuestNotRunning(name='x')
        self.guest.disarm_dedup.side_effect = errors.GuestNotRunning(
            name='x')
        self.check_not_armed()
        self.assertEqual(1, len(self.record.warnings))

    def test_earlier_migration_is_just_over(self):
        self.guest.arm_dedup.side_effect = [BUSY, BUSY, None]
        self.task.execute(fakes.some_plan())
        self.assertTrue(self.record.armed)
        self.assertEqual(2, self.sleep.call_count)

    def test_earlier_migration_goes_on(self):
        self.guest.arm_dedup.side_effect = BUSY
        with mock.patch.object(arm.time, 'monotonic', autospec=True,
                               side_effect=range(100)):
            self.check_not_armed()

    def test_revert(self):
        self.task.execute(fakes.some_plan())
        self.task.revert(result=None, flow_failures={})
        self.guest.disarm_dedup.assert_called_once_with()
        self.assertFalse(self.record.armed)

    def test_revert_of_nothing(self):
        self.task.execute(None)
        self.task.revert(result=None, flow_failures={})
        self.guest.disarm_dedup.assert_not_called()

    def test_revert_fails(self):
        self.task.execute(fakes.some_plan())
        self.guest.disarm_dedup.side_effect = errors.QmpTimeout(
            command='x-dedup-disarm', seconds=60)
        self.task.revert(result=None, flow_failures={})
        self.assertEqual(1, len(self.record.warnings))

    def test_revert_when_it_is_gone(self):
        self.task.execute(fakes.some_plan())
        self.guest.disarm_dedup.side_effect = errors.QmpDisconnected(
            command='x-dedup-disarm')
        self.task.revert(result=None, flow_failures={})
        self.assertEqual([], self.record.warnings)


class DisarmTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = fakes.record()
        self.record.armed = True
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.task = arm.Disarm(self.record, self.guest)

    def test_stayed(self):
        self.record.finish('cancelled')
        self.task.execute()
        self.guest.disarm_dedup.assert_called_once_with()

    def test_left(self):
        self.record.finish('completed')
        self.task.execute()
        self.guest.disarm_dedup.assert_not_called()

    def test_was_not_armed(self):
        self.record.armed = False
        self.record.finish('failed')
        self.task.execute()
        self.guest.disarm_dedup.assert_not_called()

    def test_failure(self):
        self.record.finish('failed')
        self.guest.disarm_dedup.side_effect = errors.QmpTimeout(
            command='x-dedup-disarm', seconds=60)
        self.task.execute()
        self.assertEqual(1, len(self.record.warnings))
