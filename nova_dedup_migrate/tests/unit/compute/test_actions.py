# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import fixtures
from nova import exception
from nova.compute import power_state
from nova.virt.libvirt import guest as libvirt_guest
from nova.virt.libvirt import host as libvirt_host

from nova_dedup_migrate.compute import actions
from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.compute import manager
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.recovery import rules
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import fakes


class ActionsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.saved = []
        self.operation = fakes.operation(self.saved,
                                         phase=operations.RUNNING)
        self.calls = mock.Mock()
        self.manager = mock.create_autospec(manager.ManagerPort,
                                            instance=True)
        self.host = mock.create_autospec(libvirt_host.Host, instance=True)
        self.guest = mock.create_autospec(libvirt_guest.Guest, instance=True)
        self.host.get_guest.return_value = self.guest
        self.qemu = mock.create_autospec(guests.InstanceGuest, instance=True)
        self.open_guest = mock.Mock(spec=[], return_value=self.qemu)
        self.agents = mock.create_autospec(api.AgentAPI, instance=True)
        for name, one in (('nova', self.manager), ('agent', self.agents),
                          ('guest', self.guest), ('qemu', self.qemu)):
            self.calls.attach_mock(one, name)
        self.actions = actions.Actions(self.manager, self.host,
                                       self.open_guest, self.agents)

    def act(self, action, why='why', **at):
        return self.actions.act(
            self.operation, rules.Observation(phase=self.operation.phase,
                                              **at),
            rules.Decision('rule', action, why))

    def called(self):
        return [name for name, *_ in self.calls.mock_calls
                if name not in ('nova.context', 'nova.named')]

    def test_every_action_is_known(self):
        for rule in rules.RULES:
            if rule.action not in (rules.LEAVE, rules.WAIT):
                self.operation = fakes.operation(phase=operations.RUNNING)
                self.act(rule.action)

    def test_deleted(self):
        self.assertTrue(self.act(rules.FORGET, instance=rules.GONE))
        self.assertEqual(['nova.forget'], self.called())

    def test_superseded(self):
        self.assertTrue(self.act(rules.FORGET))
        self.assertEqual([], self.called())

    def test_hands_off(self):
        """Nothing is done, and an operator gets to know all."""
        self.assertTrue(self.act(rules.HANDS_OFF, 'evacuated',
                                 host='third'))
        self.assertEqual([], self.called())
        for part in (fakes.MIGRATION, fakes.UUID, 'from here to there',
                     'evacuated', 'host third'):
            self.assertIn(part, self.log.output)
        self.assertEqual('failed', self.operation.outcome)

    def test_abort(self):
        self.assertFalse(self.act(rules.ABORT_JOB))
        self.assertEqual(['guest.abort_job'], self.called())

    def test_finish(self):
        self.manager.finish.side_effect = lambda *args: self.assertEqual(
            ['finishing'], self.saved)
        self.assertTrue(self.act(rules.FINISH, here=rules.ABSENT))
        self.assertEqual(['nova.finish', 'nova.restore'], self.called())
        self.assertEqual('completed', self.operation.outcome)

    def test_finish_a_guest_that_libvirt_still_has(self):
        self.act(rules.FINISH, here=rules.LEAVING)
        self.assertEqual(['guest.poweroff', 'guest.delete_configuration',
                          'nova.finish', 'nova.restore'], self.called())

    def test_finish_a_guest_that_was_shut_off(self):
        self.act(rules.FINISH, here=rules.SHUT_OFF)
        self.assertNotIn('guest.poweroff', self.called())

    def test_finishing_fails(self):
        self.manager.finish.side_effect = exception.NovaException('x')
        self.assertRaises(exception.NovaException, self.act, rules.FINISH)
        self.assertIsNone(self.operation.outcome)

    def test_close_on_the_destination(self):
        self.assertTrue(self.act(rules.CLOSE,
                                 instance=rules.AT_DESTINATION))
        self.assertEqual(['nova.close', 'nova.restore'], self.called())
        self.assertEqual('completed', self.operation.outcome)

    def test_close_on_the_source(self):
        self.assertTrue(self.act(rules.CLOSE))
        self.assertEqual('failed', self.operation.outcome)

    def test_roll_back(self):
        self.operation.durable.undo.append(operations.UNDO_ARM)
        self.manager.roll_back.side_effect = lambda *args: (
            self.assertEqual('rolling back', self.saved[0]))
        self.assertTrue(self.act(rules.ROLL_BACK, here=rules.PRESENT))
        self.assertEqual(
            ['qemu.disarm_dedup', 'qemu.close', 'agent.forget_guest',
             'nova.roll_back', 'nova.restore'], self.called())
        self.agents.forget_guest.assert_called_once_with(
            self.manager.context.return_value, 'there', fakes.UUID,
            fakes.MIGRATION)
        self.manager.roll_back.assert_called_once_with(self.operation,
                                                       'failed')
        self.assertEqual([], self.operation.durable.undo)

    def test_roll_back_what_was_cancelled(self):
        self.operation.durable.requests.append(operations.ABORT)
        self.act(rules.ROLL_BACK, here=rules.PRESENT)
        self.manager.roll_back.assert_called_once_with(self.operation,
                                                       'cancelled')
        self.assertEqual('cancelled', self.operation.outcome)

    def test_roll_back_what_was_not_begun(self):
        """libvirt of the destination was never called."""
        for phase in (operations.REQUESTED, operations.PREPARING):
            self.operation = fakes.operation(phase=phase)
            self.act(rules.ROLL_BACK, here=rules.PRESENT)
        self.agents.forget_guest.assert_not_called()

    def test_roll_back_without_an_agent(self):
        self.agents.forget_guest.side_effect = errors.AgentUnavailable(
            'there', 'gone')
        self.assertTrue(self.act(rules.ROLL_BACK, here=rules.PRESENT))

    def test_roll_back_without_a_guest(self):
        self.operation.durable.undo.append(operations.UNDO_ARM)
        self.open_guest.side_effect = LookupError
        self.assertTrue(self.act(rules.ROLL_BACK, here=rules.SHUT_OFF))

    def test_roll_back_a_guest_whose_monitor_does_not_answer(self):
        self.operation.durable.undo.append(operations.UNDO_ARM)
        self.open_guest.side_effect = hypervisor_errors.QmpTimeout(
            command='qmp_capabilities', seconds=5)
        self.assertTrue(self.act(rules.ROLL_BACK, here=rules.PRESENT))
        self.assertEqual(1, len(self.operation.warnings))

    def test_a_guest_that_nova_has_paused_is_resumed(self):
        """Nova keeps in its thread alone that it must be."""
        self.operation.durable.undo.append(operations.UNDO_PAUSE)
        self.open_guest.side_effect = AssertionError
        self.guest.get_power_state.return_value = power_state.PAUSED
        self.act(rules.ROLL_BACK, here=rules.PRESENT)
        self.guest.resume.assert_called_once_with()
        self.assertEqual([], self.operation.durable.undo)

    def test_a_guest_that_its_user_has_paused_is_not(self):
        self.guest.get_power_state.return_value = power_state.PAUSED
        self.act(rules.ROLL_BACK, here=rules.PRESENT)
        self.guest.resume.assert_not_called()

    def test_a_guest_that_libvirt_has_stopped_is_resumed(self):
        self.guest.get_power_state.return_value = power_state.PAUSED
        self.act(rules.ROLL_BACK, here=rules.LEAVING)
        self.guest.resume.assert_called_once_with()

    def test_fail(self):
        """It is not known where the guest is."""
        self.assertFalse(self.act(rules.FAIL, 'not known',
                                  reason='no answer'))
        self.manager.fail.assert_called_once_with(self.operation, mock.ANY,
                                                  False)
        reason = self.manager.fail.call_args.args[1]
        for part in (fakes.MIGRATION, 'from here to there', 'not known',
                     'no answer'):
            self.assertIn(part, reason)
        self.assertEqual(operations.STUCK, self.operation.phase)

    def test_rolling_back_failed_too_often(self):
        self.operation = fakes.operation(phase=operations.ROLLING_BACK,
                                         failures=rules.MAX_FAILURES)
        self.act(rules.FAIL)
        self.manager.fail.assert_called_once_with(self.operation, mock.ANY,
                                                  True)
        self.manager.finish.assert_not_called()

    def test_finishing_failed_too_often(self):
        """Nova moves the instance to where its guest is."""
        self.operation = fakes.operation(phase=operations.FINISHING,
                                         failures=rules.MAX_FAILURES)
        self.manager.finish.side_effect = exception.NovaException('x')
        self.manager.has_moved.return_value = True
        self.act(rules.FAIL)
        self.manager.finish.assert_called_once_with(self.operation,
                                                    last=True)
        self.manager.fail.assert_called_once_with(self.operation, mock.ANY,
                                                  True)
        self.assertEqual(0, self.operation.durable.failures)

    def test_the_instance_cannot_be_moved_either(self):
        """Nobody may start it here, and nothing is tried any more."""
        self.operation = fakes.operation(phase=operations.FINISHING,
                                         failures=rules.MAX_FAILURES)
        self.manager.finish.side_effect = exception.NovaException('x')
        self.manager.has_moved.return_value = False
        self.act(rules.FAIL)
        self.manager.fail.assert_called_once_with(self.operation, mock.ANY,
                                                  False)
        self.assertEqual(rules.MAX_FAILURES,
                         self.operation.durable.failures)
