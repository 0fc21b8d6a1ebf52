# SPDX-License-Identifier: Apache-2.0
"""Which compute hosts may read whose backups.

Requests come from hosts, not from users.  A rule sees the host as ``host``
of the credentials, and ``project_id`` and ``volume_id`` of the target.  So
"host:compute-1 or host:compute-2" permits two hosts, and
"not 'PROJECT':%(project_id)s" all projects but one.
"""

from __future__ import annotations

from oslo_config import cfg
from oslo_policy import policy

from cinder_backup_assist import errors

#: In the directories of cinder.conf, unless it is absolute.
FILE = 'backup_assist_policy.yaml'

RULES = [
    policy.DocumentedRuleDefault(
        name='backup_assist:find',
        check_str='@',
        description='List the backups of a volume.',
        operations=[{'method': 'RPC', 'path': 'find'}]),
    policy.DocumentedRuleDefault(
        name='backup_assist:open',
        check_str='@',
        description='Read a backup.',
        operations=[{'method': 'RPC', 'path': 'open'}]),
]


def list_rules() -> list:
    """Return the rules, for oslopolicy-sample-generator."""
    return RULES


class Policy:
    """:param conf: with oslo.policy's options"""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._enforcer = policy.Enforcer(conf, policy_file=FILE)
        self._enforcer.register_defaults(RULES)

    def check(self, rule: str, host: str, project_id: str, volume_id: str
              ) -> None:
        """:raises RequestRefused: the policy forbids it"""
        if not self._enforcer.enforce(
                'backup_assist:' + rule,
                {'project_id': project_id, 'volume_id': volume_id},
                {'host': host}):
            raise errors.RequestRefused(
                reason='the policy backup_assist:%s forbids it for the host '
                '%s and the project %s' % (rule, host or '-', project_id))
