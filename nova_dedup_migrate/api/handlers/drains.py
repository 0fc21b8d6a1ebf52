# SPDX-License-Identifier: Apache-2.0
"""/v1/drains"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_log import log as logging
from oslo_utils import uuidutils

from nova_dedup_migrate.api import errors
from nova_dedup_migrate.api import request as requests
from nova_dedup_migrate.db import drains

LOG = logging.getLogger(__name__)

_COLUMNS = ('id', 'host', 'state', 'reason', 'dry_run', 'order',
            'max_parallel', 'link_rate', 'on_blocked', 'cancel', 'user_id',
            'revision', 'eta', 'safe_to_power_off')
_TIMES = ('deadline', 'created_at', 'updated_at', 'finished_at')
_SERVER_COLUMNS = ('server_id', 'project_id', 'state', 'reason', 'blockers',
                   'on_blocked', 'position', 'action', 'tries',
                   'migration_uuid')
_SERVER_TIMES = ('retry_at', 'submitted_at', 'started_at', 'finished_at')
_DEFAULTS = {'dry_run': False, 'order': 'longest', 'max_parallel': None,
             'link_rate': None, 'deadline': None, 'on_blocked': 'wait'}


def index(request: requests.Request) -> requests.Response:
    filters = {name: request.query[name] for name in ('state', 'host')
               if name in request.query}
    with request.database.read() as session:
        page = drains.find(session, filters, request.marker, request.limit)
        counts = drains.counts(session, [row['id'] for row in page.rows])
    return requests.Response(request.page(
        'drains', page, lambda row: _plain(row, counts[row['id']])))


def show(request: requests.Request) -> requests.Response:
    with request.database.read() as session:
        row = drains.get(session, request.path['id'])
    return _response(request, row)


def create(request: requests.Request) -> requests.Response:
    wanted = {**_DEFAULTS, **request.body['drain']}
    wanted.setdefault('id', uuidutils.generate_uuid())
    wanted['deadline'] = requests.seconds(wanted['deadline'], 'deadline')
    wanted['choices'] = _choices(wanted.pop('servers', []))
    wanted['user_id'] = request.context.user_id or ''
    row, new = request.database.retrying(
        lambda session: drains.create(session, wanted))
    if new:
        LOG.info('User %(user)s requests drain %(drain)s of host %(host)s',
                 {'user': wanted['user_id'], 'drain': row['id'],
                  'host': row['host']})
    made = _response(request, row)
    return requests.Response(made.body, 202 if new else 200,
                             made.revision, '/v1/drains/' + row['id'])


def update(request: requests.Request) -> requests.Response:
    values = dict(request.body['drain'])
    if 'deadline' in values:
        values['deadline'] = requests.seconds(values['deadline'],
                                              'deadline')
    row = request.database.retrying(lambda session: drains.change(
        session, request.path['id'], request.if_match, values))
    return _response(request, row)


def delete(request: requests.Request) -> requests.Response:
    request.database.retrying(
        lambda session: drains.delete(session, request.path['id']))
    return requests.Response()


def action(request: requests.Request) -> requests.Response:
    name, values = next(iter(request.body.items()))
    wish = drains.RUN if name == 'resume' else name
    fate = values['in_flight'] if name == 'cancel' else None
    row = request.database.retrying(lambda session: drains.request(
        session, request.path['id'], wish, fate))
    LOG.info('User %(user)s requests to %(wish)s drain %(drain)s',
             {'user': request.context.user_id, 'wish': name,
              'drain': row['id']})
    return _response(request, row)


def servers(request: requests.Request) -> requests.Response:
    with request.database.read() as session:
        page = drains.servers(session, request.path['id'],
                              request.query.get('state'), request.marker,
                              request.limit)
    return requests.Response(request.page('servers', page, _server))


def show_server(request: requests.Request) -> requests.Response:
    with request.database.read() as session:
        row = drains.server(session, request.path['id'],
                            request.path['server'])
    return requests.Response({'server': _server(row)})


def update_server(request: requests.Request) -> requests.Response:
    values = dict(request.body['server'])
    skip = values.pop('skip', False)
    if skip and values:
        raise errors.BadRequest(
            reason='a server that is skipped has no position or on_blocked')
    if 'position' in values:
        values['fixed_position'] = values.pop('position')
    row = request.database.retrying(lambda session: drains.change_server(
        session, request.path['id'], request.path['server'], values, skip))
    return requests.Response({'server': _server(row)})


def events(request: requests.Request) -> requests.Response:
    with request.database.read() as session:
        page = drains.events(session, request.path['id'], request.marker,
                             request.limit)
    return requests.Response(request.page('events', page, lambda row: {
        'at': requests.time(row['at']), 'server_id': row['server_id'],
        'message': row['message']}))


def _choices(servers: Sequence[Mapping[str, str]]
             ) -> dict[str, str] | None:
    """Return {server: what to do if it cannot move}; None if empty."""
    made = {one['server_id']: one['on_blocked'] for one in servers}
    if len(made) < len(servers):
        raise errors.BadRequest(
            reason='servers has two choices for one server')
    return made or None


def _response(request: requests.Request, row: Mapping[str, Any]
              ) -> requests.Response:
    with request.database.read() as session:
        counts = drains.counts(session, [row['id']])[row['id']]
    return requests.Response({'drain': _plain(row, counts)},
                             revision=row['revision'])


def _plain(row: Mapping[str, Any], counts: Mapping[str, int]
           ) -> dict[str, Any]:
    return {
        **{name: row[name] for name in _COLUMNS},
        **{name: requests.time(row[name]) for name in _TIMES},
        'requested': row['wish'],
        'counts': {state: counts.get(state, 0)
                   for state in drains.SERVER_STATES},
        'conditions': [{**one, 'checked_at': requests.time(
            one['checked_at'])} for one in row['conditions']]}


def _server(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: row[name] for name in _SERVER_COLUMNS},
            **{name: requests.time(row[name]) for name in _SERVER_TIMES},
            'server_name': row['name'],
            'destination': row['destination'] or None,
            'estimate': row['prediction']}
