# SPDX-License-Identifier: Apache-2.0
"""Errors of the RPC layer."""

from __future__ import annotations

from nova_dedup_migrate import errors


class AgentUnavailable(errors.DedupMigrateError):
    """The agent of a host gave no usable answer.

    This is the only error a caller of api.AgentAPI has to expect: no
    agent, an agent of another version, a time-out, a malformed answer.

    :ivar host: whose agent
    :ivar reason: one sentence without a full stop, for reports
    """

    template = 'the dedup agent of {host} is not available: {reason}'

    host: str
    reason: str

    def __init__(self, host: str, reason: object) -> None:
        super().__init__(host=host, reason=reason)


class AgentVersion(AgentUnavailable):
    """The agent has another version of the API."""


class AgentRefused(AgentUnavailable):
    """The agent works, and refuses this request; reason is its own.

    :ivar kind: name of the error in agent.errors
    """

    template = 'the dedup agent of {host} refuses the request: {reason}'

    def __init__(self, host: str, reason: object, kind: str) -> None:
        super().__init__(host, reason)
        self.kind = kind


class MalformedMessage(errors.DedupMigrateError, ValueError):
    """What arrived is no object of ours, or a part of it is not."""

    template = 'the message is malformed: {reason}'


class EngineUnavailable(errors.DedupMigrateError):
    """No engine of the controller has done what it was called for."""

    template = 'the engine of the controller is not available: {reason}'


class EngineRefused(EngineUnavailable):
    """An engine refuses it, and will again."""

    template = 'the engine of the controller refuses it: {reason}'
