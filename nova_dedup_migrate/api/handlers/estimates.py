# SPDX-License-Identifier: Apache-2.0
"""/v1/estimates"""

from __future__ import annotations

from collections.abc import Mapping
import json
from typing import Any

from oslo_utils import uuidutils

from nova_dedup_migrate.api import request as requests
from nova_dedup_migrate.db import errors as db_errors
from nova_dedup_migrate.db import estimates


def index(request: requests.Request) -> requests.Response:
    filters: dict[str, Any] = {}
    if not request.context.may('estimates:all_projects'):
        filters['project_id'] = request.context.project_id
    if 'state' in request.query:
        filters['state'] = request.query['state']
    with request.database.read() as session:
        page = estimates.find(session, filters, request.marker,
                              request.limit)
    return requests.Response(request.page('estimates', page, _plain))


def show(request: requests.Request) -> requests.Response:
    estimate_id = request.path['id']
    with request.database.read() as session:
        row = estimates.get(session, estimate_id)
    if not request.context.may('estimates:show',
                               {'project_id': row['project_id']}):
        raise db_errors.NotFound(kind='estimate', name=estimate_id)
    return requests.Response({'estimate': _plain(row)})


def create(request: requests.Request) -> requests.Response:
    wanted = request.body['estimate']
    context = request.context
    if 'host' in wanted:
        context.require('estimates:create:host')
    # The engine refuses a server of another project, as if there were none.
    project = (None if context.may('estimates:all_projects')
               else context.project_id)
    values = {'id': uuidutils.generate_uuid(), 'project_id': project,
              'server_id': wanted.get('server_id'),
              'host': wanted.get('host')}
    options = request.conf.api
    row = request.database.retrying(lambda session: estimates.create(
        session, values, options.estimate_lifetime,
        options.max_waiting_estimates))
    return requests.Response({'estimate': _plain(row)},
                             location='/v1/estimates/' + row['id'])


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    result = json.loads(row['result']) if row['result'] else {}
    return {
        'id': row['id'], 'server_id': row['server_id'],
        'host': row['host'], 'state': row['state'],
        'error': row['error'] or None,
        'created_at': requests.time(row['created_at']),
        'expires_at': requests.time(row['expires_at']),
        'total_time': result.get('total_time'),
        'servers': result.get('servers')}
