# SPDX-License-Identifier: Apache-2.0
"""/v1/migrations"""

from __future__ import annotations

from collections.abc import Mapping
import json
from typing import Any

from nova_dedup_migrate.api import request as requests
from nova_dedup_migrate.db import errors as db_errors
from nova_dedup_migrate.db import migrations

#: What names hosts, or may.
_OF_HOSTS = ('source', 'destination', 'fallback_reason', 'error',
             'waiting_for')
_TIMES = ('started_at', 'finished_at', 'updated_at')
_COLUMNS = ('uuid', 'server_id', 'server_name', 'project_id', 'source',
            'destination', 'state', 'phase', 'strategy', 'drain_id')


def index(request: requests.Request) -> requests.Response:
    filters: dict[str, Any] = {}
    context = request.context
    every = context.may('migrations:list:all_projects')
    hosts = context.may('migrations:show:hosts')
    for name, column in (('state', 'state'), ('host', 'host'),
                         ('server', 'server_id'),
                         ('project', 'project_id'), ('drain', 'drain_id')):
        if name in request.query:
            filters[column] = request.query[name]
    if 'host' in filters and not hosts:
        # It would tell where the servers are.
        context.require('migrations:show:hosts')
    if not every:
        wanted = filters.setdefault('project_id', context.project_id)
        if wanted != context.project_id:
            context.require('migrations:list:all_projects')
    since = requests.seconds(request.query.get('changes-since'),
                             'changes-since')
    if since is not None:
        filters['updated_since'] = since
    with request.database.read() as session:
        page = migrations.find(session, filters, request.marker,
                               request.limit)
    return requests.Response(request.page(
        'migrations', page, lambda row: _plain(row, hosts)))


def show(request: requests.Request) -> requests.Response:
    row = _visible(request, 'migrations:show')
    return requests.Response({'migration': _plain(
        row, request.context.may('migrations:show:hosts'))})


def rounds(request: requests.Request) -> requests.Response:
    _visible(request, 'migrations:rounds')
    report = _report(request)
    return requests.Response({'rounds': report.get('rounds') or []})


def report(request: requests.Request) -> requests.Response:
    _visible(request, 'migrations:report')
    return requests.Response({'report': _report(request)})


def _visible(request: requests.Request, policy: str) -> Mapping[str, Any]:
    """Return a migration that the caller may see.

    :raises NotFound: also if it is another project's
    """
    uuid = request.path['uuid']
    with request.database.read() as session:
        row = migrations.get(session, uuid)
    if not request.context.may(policy, {'project_id': row['project_id']}):
        raise db_errors.NotFound(kind='migration', name=uuid)
    return row


def _report(request: requests.Request) -> dict[str, Any]:
    with request.database.read() as session:
        data = migrations.report(session, request.path['uuid'])
    found: dict[str, Any] = json.loads(data)
    return found


def _plain(row: Mapping[str, Any], hosts: bool) -> dict[str, Any]:
    made = {**row['summary'], **{name: row[name] for name in _COLUMNS},
            **{name: requests.time(row[name]) for name in _TIMES}}
    if not hosts:
        made.update(dict.fromkeys(_OF_HOSTS))
    return made
