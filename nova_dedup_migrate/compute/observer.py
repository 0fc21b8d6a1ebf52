# SPDX-License-Identifier: Apache-2.0
"""Observing a migration: Nova's database, libvirt here, the destination.

Everything is read anew each time; nothing is remembered between two
observations.  What cannot be read is UNKNOWN, with the reason.
"""

from collections.abc import Callable
import dataclasses
import time
import typing

import libvirt
from nova import exception
from nova.compute import task_states
from nova.compute import vm_states
from oslo_log import log as logging

from nova_dedup_migrate.compute import manager as compute_manager
from nova_dedup_migrate.hypervisor import peer
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.recovery import owners as ownership
from nova_dedup_migrate.recovery import rules
from nova_dedup_migrate.rpc import errors

LOG = logging.getLogger(__name__)

#: Seconds after which a request that Nova's queue does not have is lost.
#: The calls that Nova makes before it sends one, or after it has taken one
#: from its queue, time out after 60; and the queue is looked at each 30.
REQUEST_S = 120.0
#: Types of JobInfo of a guest that is not migrated any more.
_NO_JOB = (libvirt.VIR_DOMAIN_JOB_NONE, libvirt.VIR_DOMAIN_JOB_COMPLETED,
           libvirt.VIR_DOMAIN_JOB_FAILED, libvirt.VIR_DOMAIN_JOB_CANCELLED)
#: Phases in which libvirt was not called to migrate.
_NOT_CALLED = (operations.REQUESTED, operations.PREPARING)
_DELETING = (task_states.DELETING, task_states.SOFT_DELETING)
_PAUSED = libvirt.VIR_DOMAIN_PAUSED
_STATES = {
    (_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY): rules.POSTCOPY,
    (_PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED):
        rules.POSTCOPY_FAILED,
    (_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION): rules.LEAVING,
}
_THERE = {'none': rules.NONE, 'arriving': rules.ARRIVING,
          'here': rules.RUNNING}
_ONE_ANSWER = {**_THERE, 'none': rules.UNSEEN, 'here': rules.CLAIMED}


class DestinationAgent(typing.Protocol):
    """What is asked of the agents: rpc.api.AgentAPI."""

    def guest_state(self, ctxt: typing.Any, host: str,
                    instance_uuid: str) -> str:
        """Return one of rpc.objects.GUEST_STATES."""


class Observer:
    """Makes Observations.

    :param manager: compute_manager.ManagerPort
    :param get_guest: as nova.virt.libvirt.host.Host.get_guest
    :param agents: rpc.api.AgentAPI
    :param owners: ownership.Owners
    """

    def __init__(self, manager: compute_manager.ManagerPort,
                 get_guest: Callable, agents: DestinationAgent,
                 owners: ownership.Owners) -> None:
        self._manager = manager
        self._get_guest = get_guest
        self._agents = agents
        self._owners = owners

    def observe(self, operation: operations.Operation,
                quiet: float, loaded: bool,
                owner: str = '') -> rules.Observation:
        """Return what is known now.

        :param quiet: seconds without a change of phase and status
        :param loaded: whether an earlier process began it
        :param owner: as whom the caller has claimed it
        :raises: what Nova's database does
        """
        durable = operation.durable
        at = rules.Observation(
            owner=self._owners.owner(durable.subject, owner),
            phase=durable.phase,
            failures=durable.failures, quiet=quiet,
            overdue=(durable.deadline is not None
                     and time.time() > durable.deadline))
        if at.owner:
            return at
        at = self._database(durable, at, loaded)
        if at.instance != rules.AT_SOURCE or not at.migrating:
            return at
        called = durable.phase not in _NOT_CALLED
        here, reason = self._here(durable.subject, called)
        at = dataclasses.replace(at, here=here, reason=reason)
        if here in (rules.UNKNOWN, rules.MIGRATING):
            return at
        if here == rules.PRESENT and not called:
            return dataclasses.replace(at, there=rules.NONE)
        there, reason = self._there(durable, at.status)
        return dataclasses.replace(at, there=there,
                                   reason=reason or at.reason)

    # Nova's database

    def _database(self, durable: operations.Durable, at: rules.Observation,
                  loaded: bool) -> rules.Observation:
        instance = self._manager.instance(durable.subject)
        if instance is None:
            return dataclasses.replace(at, instance=rules.GONE)
        migration, newest = self._manager.migration(durable.id,
                                                    durable.subject)
        destination = self._manager.destination(durable, migration)
        where = (rules.AT_SOURCE if instance.host == durable.source
                 else rules.AT_DESTINATION if instance.host == destination
                 else rules.ELSEWHERE)
        status = migration.status if migration is not None else ''
        patience = (REQUEST_S if status == 'accepted' or not loaded
                    else 0.0)
        return dataclasses.replace(
            at, instance=where, host=instance.host or '', status=status,
            migrating=instance.task_state == task_states.MIGRATING,
            # Nova clears the task state a moment before it is gone.
            deleting=(instance.task_state in _DELETING
                      or instance.vm_state == vm_states.DELETED),
            superseded=newest is not None and newest != durable.id,
            patience=patience)

    # Guests

    def _here(self, uuid: str, called: bool) -> tuple[str, str]:
        """Return the guest on the source, and why it is UNKNOWN.

        :param called: whether libvirt was called to migrate; if not, a job
            belongs to somebody else, as a snapshot's does
        """
        try:
            guest = self._get_guest(self._manager.named(uuid))
            if not guest.is_active():
                return rules.SHUT_OFF, ''
            state = _STATES.get(tuple(guest._domain.state()))
            if state in (rules.POSTCOPY, rules.POSTCOPY_FAILED):
                return state, ''
            if called and guest.get_job_info().type not in _NO_JOB:
                return rules.MIGRATING, ''
            return state or rules.PRESENT, ''
        except exception.InstanceNotFound:
            return rules.ABSENT, ''
        except (libvirt.libvirtError, exception.NovaException) as error:
            return rules.UNKNOWN, 'libvirt on the source: %s' % error

    def _there(self, durable: operations.Durable,
               status: str) -> tuple[str, str]:
        """Return the guest on the destination, and why it is UNKNOWN.

        Its agent and its libvirt must agree, if both answer.
        """
        host = durable.destination
        if not host:
            return rules.NONE, ''
        agent, reason = self._agent(host, durable.subject)
        uri = self._manager.libvirt_uri(host, durable)
        # What the agent reads is the same libvirt; the second answer is
        # for an agent that is mistaken, or no agent of ours.
        state = peer.guest_state(uri, durable.subject)
        if agent is None and state is None:
            return rules.UNKNOWN, ('%s; %s does not answer' % (reason, uri))
        if agent is None or state is None:
            return _ONE_ANSWER[agent or state or 'none'], ''
        if agent != state:
            return rules.UNKNOWN, (
                'agent and libvirt of %s disagree: %s, %s'
                % (host, agent, state))
        return _THERE[agent], ''

    def _agent(self, host: str, uuid: str) -> tuple[str | None, str]:
        try:
            return self._agents.guest_state(self._manager.context(), host,
                                            uuid), ''
        except errors.AgentUnavailable as error:
            return None, str(error)
