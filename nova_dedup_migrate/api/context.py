# SPDX-License-Identifier: Apache-2.0
"""Who sends a request, and what he may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oslo_context import context
from oslo_policy import policy

from nova_dedup_migrate.api import errors


class RequestContext(context.RequestContext):
    """:ivar enforcer: of the process; from_environ takes it"""

    def __init__(self, *args: Any, enforcer: policy.Enforcer | None = None,
                 **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.enforcer = enforcer
        #: Names of the policies that were enforced, for tests.
        self.enforced: list[str] = []

    def may(self, name: str, target: Mapping[str, Any] | None = None
            ) -> bool:
        """Whether a policy permits it.

        :param name: without its prefix
        :param target: what it is about, default the own project
        """
        assert self.enforcer is not None
        self.enforced.append(name)
        return bool(self.enforcer.authorize(
            'dedup_migrate:' + name,
            dict(target or {'project_id': self.project_id}), self))

    def require(self, name: str, target: Mapping[str, Any] | None = None
                ) -> None:
        """Raise Forbidden unless a policy permits it."""
        if not self.may(name, target):
            raise errors.Forbidden(
                policy='dedup_migrate:' + name,
                roles=', '.join(sorted(self.roles or ())) or 'none')
