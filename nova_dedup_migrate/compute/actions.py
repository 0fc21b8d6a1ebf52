# SPDX-License-Identifier: Apache-2.0
"""Carrying out a decision.

Each action first writes its phase, so that a crash in the middle finds it;
all of them can be repeated from their beginning.  Nova's own steps are in
compute.manager.
"""

from collections.abc import Callable
import typing

from nova import exception
from nova.compute import power_state
from oslo_log import log as logging

from nova_dedup_migrate.compute import manager as compute_manager
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.recovery import rules
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.tasks import undo

LOG = logging.getLogger(__name__)


class DestinationAgent(typing.Protocol):
    """What is asked of the agents: rpc.api.AgentAPI."""

    def forget_guest(self, ctxt: typing.Any, host: str, instance_uuid: str,
                     migration_uuid: str) -> bool:
        """Undefine a guest of a failed migration that is shut off."""


class Actions:
    """Does what rules.decide() says.

    :param manager: compute_manager.ManagerPort
    :param host: nova.virt.libvirt.host.Host of the source
    :param open_guest: callable(nova.objects.Instance) -> hypervisor Guest;
        raises LookupError
    :param agents: rpc.api.AgentAPI
    """

    def __init__(self, manager: compute_manager.ManagerPort,
                 host: typing.Any,
                 open_guest: Callable[[typing.Any], hypervisor.Guest],
                 agents: DestinationAgent) -> None:
        self._manager = manager
        self._host = host
        self._open_guest = open_guest
        self._agents = agents

    def act(self, operation: operations.Operation,
            at: rules.Observation, decision: rules.Decision) -> bool:
        """Carry out a Decision.

        :returns: whether the operation has ended
        :raises: what Nova's steps do; the decision can be carried out again
        """
        action = {
            rules.FORGET: self._forget, rules.HANDS_OFF: self._hands_off,
            rules.ABORT_JOB: self._abort_job, rules.FINISH: self._finish,
            rules.CLOSE: self._close, rules.ROLL_BACK: self._roll_back,
            rules.FAIL: self._fail}[decision.action]
        return action(operation, at, decision)

    def _forget(self, operation: operations.Operation,
                at: rules.Observation, decision: rules.Decision) -> bool:
        if at.instance == rules.GONE:
            self._manager.forget(operation)
        self._undo(operation)
        operation.finish('failed')
        return True

    def _hands_off(self, operation: operations.Operation,
                   at: rules.Observation, decision: rules.Decision) -> bool:
        """Leave it to an operator: it is not the state we have left.

        Only what the undo log has of a QEMU on this host is undone.
        """
        LOG.critical(
            'Live migration %(migration)s of instance %(instance)s from '
            '%(source)s to %(destination)s is not settled: %(why)s. The '
            'instance is on host %(host)s. Check that its guest runs on that '
            'host alone, and its volume attachments, port bindings and '
            'allocations.',
            {'migration': operation.migration_uuid,
             'instance': operation.instance_uuid,
             'source': operation.source,
             'destination': operation.destination or 'no host yet',
             'why': decision.why, 'host': at.host})
        operation.explain(decision.why)
        self._undo(operation)
        operation.finish('failed')
        return True

    def _abort_job(self, operation: operations.Operation,
                   at: rules.Observation, decision: rules.Decision) -> bool:
        guest = self._host.get_guest(
            self._manager.named(operation.instance_uuid))
        guest.abort_job()
        return False

    def _finish(self, operation: operations.Operation,
                at: rules.Observation, decision: rules.Decision) -> bool:
        operation.enter(operations.FINISHING)
        self._remove_here(operation, at)
        self._manager.finish(operation)
        return self._completed(operation)

    def _close(self, operation: operations.Operation,
               at: rules.Observation, decision: rules.Decision) -> bool:
        self._manager.close(operation)
        if at.instance == rules.AT_DESTINATION:
            return self._completed(operation)
        self._undo(operation)
        operation.finish('failed')
        return True

    def _completed(self, operation: operations.Operation) -> bool:
        self._manager.restore(operation)
        operation.finish('completed')
        return True

    def _roll_back(self, operation: operations.Operation,
                   at: rules.Observation, decision: rules.Decision) -> bool:
        begun = operation.phase not in (operations.REQUESTED,
                                        operations.PREPARING)
        operation.enter(operations.ROLLING_BACK)
        self._undo(operation)
        self._resume(operation, at)
        if begun:
            self.forget_guest(operation)
        status = ('cancelled' if operations.ABORT
                  in operation.durable.requests else 'failed')
        self._manager.roll_back(operation, operation.outcome or status)
        self._manager.restore(operation)
        operation.finish(status)
        return True

    def _fail(self, operation: operations.Operation,
              at: rules.Observation, decision: rules.Decision) -> bool:
        """Set the instance to ERROR, as Nova would, with the reason."""
        reason = 'Live migration %s from %s to %s is not settled: %s%s' % (
            operation.migration_uuid, operation.source,
            operation.destination, decision.why,
            '. ' + at.reason if at.reason else '')
        LOG.error('Instance %(instance)s is set to ERROR. %(reason)s',
                  {'instance': operation.instance_uuid, 'reason': reason})
        operation.explain(reason)
        known = operation.durable.failures >= rules.MAX_FAILURES
        if known and operation.phase == operations.FINISHING:
            try:
                self._manager.finish(operation, last=True)
            except Exception as error:
                # It has set the instance's host, which is what counts.
                LOG.debug('Finishing failed once more: %s', error)
            # A guest that has left must not be started here.
            known = self._manager.has_moved(operation)
            if known:
                # Removing what is left has its own attempts.
                operation.durable.failures = 0
        self._manager.fail(operation, reason, known)
        operation.enter(operations.STUCK)
        return False

    # Parts

    def forget_guest(self, operation: operations.Operation) -> None:
        """Have the destination forget a guest that has not arrived there.

        A QEMU that ends when it has taken the guest over, before libvirt
        could inform the source, leaves a domain that is shut off.
        """
        try:
            self._agents.forget_guest(
                self._manager.context(), operation.destination,
                operation.instance_uuid, operation.migration_uuid)
        except errors.AgentUnavailable as error:
            LOG.info('libvirt of %(host)s may keep a definition of instance '
                     '%(uuid)s that does not run: %(error)s',
                     {'host': operation.destination,
                      'uuid': operation.instance_uuid, 'error': error})

    def _undo(self, operation: operations.Operation) -> None:
        if not undo.is_needed(operation):
            return
        try:
            guest = self._open_guest(
                self._manager.named(operation.instance_uuid))
        except LookupError:
            return
        except Exception as error:
            operation.warn("undoing what QEMU was told", error)
            return
        try:
            undo.undo(operation, guest)
        finally:
            guest.close()

    def _resume(self, operation: operations.Operation,
                at: rules.Observation) -> None:
        """Resume a guest that the migration has stopped."""
        paused = operations.UNDO_PAUSE in operation.durable.undo
        if at.here != rules.LEAVING and not (
                paused and at.here == rules.PRESENT):
            return
        guest = self._host.get_guest(
            self._manager.named(operation.instance_uuid))
        if guest.get_power_state(self._host) == power_state.PAUSED:
            LOG.info('Instance %s is resumed: its live migration had '
                     'stopped it', operation.instance_uuid)
            guest.resume()
        operation.undone(operations.UNDO_PAUSE)

    def _remove_here(self, operation: operations.Operation,
                     at: rules.Observation) -> None:
        """Remove what libvirt of the source has of a guest that has left."""
        if at.here not in (rules.LEAVING, rules.SHUT_OFF):
            return
        try:
            guest = self._host.get_guest(
                self._manager.named(operation.instance_uuid))
        except exception.InstanceNotFound:
            return
        LOG.warning('Instance %(uuid)s runs on %(host)s: its stopped guest '
                    'is removed from this host',
                    {'uuid': operation.instance_uuid,
                     'host': operation.destination})
        if at.here == rules.LEAVING:
            guest.poweroff()
        guest.delete_configuration()
