# SPDX-License-Identifier: Apache-2.0
"""Errors of the engine."""

from __future__ import annotations

from nova_dedup_migrate import errors


class EngineError(errors.DedupMigrateError):
    """Base of the errors of the engine."""

    template = 'the engine failed'


class CloudUnavailable(EngineError):
    """OpenStack gave no answer; whether it did something is not known."""

    template = 'OpenStack does not {doing}: {reason}'


class CloudRefused(EngineError):
    """OpenStack refuses; it has done nothing.

    :ivar status: HTTP status
    """

    template = 'OpenStack refuses to {doing}: {reason}'

    status: int


class NoSuchServer(EngineError):
    template = 'there is no server {server_id}'


class ReportRefused(EngineError):
    template = ('the report of migration {migration} from host {host} is '
                'refused: {reason}')
