# SPDX-License-Identifier: Apache-2.0
"""The policies of the API, with their defaults.

Roles are those of Keystone's defaults: reader, manager, admin.  What
names hosts, or changes something outside of a project, is for admins.
"""

from __future__ import annotations

from oslo_config import cfg
from oslo_policy import policy

_READER = 'rule:project_reader_or_admin'
_MANAGER = 'rule:project_manager_or_admin'
_ADMIN = 'rule:admin_api'

_BASE = [
    policy.RuleDefault('admin_api', 'role:admin',
                       'Administrators of the cloud.'),
    policy.RuleDefault(
        'project_reader_or_admin',
        'rule:admin_api or (role:reader and project_id:%(project_id)s)',
        'Readers of the project that a server is in, and administrators.'),
    policy.RuleDefault(
        'project_manager_or_admin',
        'rule:admin_api or (role:manager and project_id:%(project_id)s)',
        'Managers of the project that a server is in, and administrators.'),
]


def _rule(name: str, check: str, description: str, *operations: str
          ) -> policy.DocumentedRuleDefault:
    """:param operations: method and path"""
    return policy.DocumentedRuleDefault(
        'dedup_migrate:' + name, check, description,
        [{'method': method, 'path': path} for method, path in
         (operation.split() for operation in operations)],
        scope_types=['project'])


_API = [
    _rule('migrations:list', _READER, 'List live migrations of a project.',
          'GET /v1/migrations'),
    _rule('migrations:list:all_projects', _ADMIN,
          'List live migrations of all projects.', 'GET /v1/migrations'),
    _rule('migrations:show', _READER, 'Show a live migration.',
          'GET /v1/migrations/{uuid}'),
    _rule('migrations:show:hosts', _ADMIN,
          'See the names of hosts, and texts that may have them, in a live '
          'migration.', 'GET /v1/migrations', 'GET /v1/migrations/{uuid}'),
    _rule('migrations:rounds', _READER,
          'List the rounds of a live migration.',
          'GET /v1/migrations/{uuid}/rounds'),
    _rule('migrations:report', _ADMIN,
          'Show the report of a live migration, which names hosts.',
          'GET /v1/migrations/{uuid}/report'),
    _rule('estimates:list', _MANAGER, 'List estimates of a project.',
          'GET /v1/estimates'),
    _rule('estimates:show', _MANAGER, 'Show an estimate.',
          'GET /v1/estimates/{id}'),
    _rule('estimates:create', _MANAGER,
          'Request an estimate for a server.', 'POST /v1/estimates'),
    _rule('estimates:create:host', _ADMIN,
          'Request an estimate for all servers of a host.',
          'POST /v1/estimates'),
    _rule('estimates:all_projects', _ADMIN,
          'Estimates of servers of all projects.', 'GET /v1/estimates',
          'POST /v1/estimates'),
    _rule('drains:list', _ADMIN, 'List drains.', 'GET /v1/drains'),
    _rule('drains:show', _ADMIN, 'Show a drain, its servers and events.',
          'GET /v1/drains/{id}', 'GET /v1/drains/{id}/servers',
          'GET /v1/drains/{id}/servers/{server}',
          'GET /v1/drains/{id}/events'),
    _rule('drains:create', _ADMIN, 'Drain a host.', 'POST /v1/drains'),
    _rule('drains:update', _ADMIN,
          'Change a drain and its servers; pause, resume, cancel, retry.',
          'PATCH /v1/drains/{id}', 'POST /v1/drains/{id}/action',
          'PATCH /v1/drains/{id}/servers/{server}'),
    _rule('drains:delete', _ADMIN, 'Delete a drain that has ended.',
          'DELETE /v1/drains/{id}'),
    _rule('hosts:list', _ADMIN, 'List hosts.', 'GET /v1/hosts'),
    _rule('hosts:show', _ADMIN, 'Show a host.', 'GET /v1/hosts/{name}'),
    _rule('hosts:update', _ADMIN, 'Change the limits of a host.',
          'PATCH /v1/hosts/{name}'),
    _rule('services:list', _ADMIN, 'List the engines.', 'GET /v1/services'),
    _rule('replicas:list', _ADMIN, 'List prepared replicas of disks.',
          'GET /v1/replicas'),
]


def list_rules() -> list[policy.RuleDefault]:
    """Return all rules; entry point oslo.policy.policies."""
    return [*_BASE, *_API]


def enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return an Enforcer of these rules and the operator's file."""
    made = policy.Enforcer(conf)
    made.register_defaults(list_rules())
    return made


def get_enforcer() -> policy.Enforcer:
    """Return one for the oslo.policy commands; entry point."""
    # They pass the configuration in the command line.
    conf = cfg.CONF
    conf([], project='nova-dedup-migrate')
    return enforcer(conf)
