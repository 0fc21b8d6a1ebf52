# SPDX-License-Identifier: Apache-2.0
"""All routes of the API, each with its policy and schemas.

This table is the only place that lists them: the application dispatches
by it, and the OpenAPI document is made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any

from nova_dedup_migrate.api import request as requests
from nova_dedup_migrate.api import schemas
from nova_dedup_migrate.api.handlers import drains
from nova_dedup_migrate.api.handlers import estimates
from nova_dedup_migrate.api.handlers import hosts
from nova_dedup_migrate.api.handlers import migrations


@dataclasses.dataclass(frozen=True)
class Route:
    """One method of one path.

    :ivar path: with {name} for parameters
    :ivar policy: what every caller needs, without its prefix
    :ivar response: schema of the body; None: there is none
    :ivar query: schemas of the parameters
    :ivar body: schema of the request's body; None: there is none
    :ivar status: of a success
    :ivar if_match: whether the header If-Match is read
    """

    method: str
    path: str
    policy: str
    handler: Callable[[requests.Request], requests.Response]
    summary: str
    response: Mapping[str, Any] | None
    query: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    status: int = 200
    if_match: bool = False


#: Schemas of the parameters in paths.
PARAMETERS = {'uuid': schemas.UUID, 'id': schemas.UUID,
              'server': schemas.UUID, 'name': schemas.HOST}

_DRAIN = '/v1/drains/{id}'
_SERVER = '/v1/drains/{id}/servers/{server}'

ROUTES = (
    Route('GET', '/v1/migrations', 'migrations:list', migrations.index,
          'List live migrations, the newest first',
          schemas.MIGRATIONS, schemas.MIGRATIONS_QUERY),
    Route('GET', '/v1/migrations/{uuid}', 'migrations:show',
          migrations.show, 'Show a live migration', schemas.MIGRATION),
    Route('GET', '/v1/migrations/{uuid}/rounds', 'migrations:rounds',
          migrations.rounds, 'List the rounds of a live migration',
          schemas.ROUNDS),
    Route('GET', '/v1/migrations/{uuid}/report', 'migrations:report',
          migrations.report, 'Show the report of a live migration',
          schemas.REPORT),
    Route('GET', '/v1/estimates', 'estimates:list', estimates.index,
          'List estimates, the newest first', schemas.ESTIMATES,
          schemas.ESTIMATES_QUERY),
    Route('POST', '/v1/estimates', 'estimates:create', estimates.create,
          'Request an estimate for a server or a host', schemas.ESTIMATE,
          body=schemas.ESTIMATE_CREATE, status=202),
    Route('GET', '/v1/estimates/{id}', 'estimates:show', estimates.show,
          'Show an estimate', schemas.ESTIMATE),
    Route('GET', '/v1/drains', 'drains:list', drains.index,
          'List drains, the newest first', schemas.DRAINS,
          schemas.DRAINS_QUERY),
    Route('POST', '/v1/drains', 'drains:create', drains.create,
          'Drain a host; repeating it with the same ID is safe',
          schemas.DRAIN, body=schemas.DRAIN_CREATE, status=202),
    Route('GET', _DRAIN, 'drains:show', drains.show, 'Show a drain',
          schemas.DRAIN),
    Route('PATCH', _DRAIN, 'drains:update', drains.update,
          'Change the limits of a drain', schemas.DRAIN,
          body=schemas.DRAIN_UPDATE, if_match=True),
    Route('DELETE', _DRAIN, 'drains:delete', drains.delete,
          'Delete a drain that has ended', None, status=204),
    Route('POST', _DRAIN + '/action', 'drains:update', drains.action,
          'Pause, resume, cancel or retry a drain', schemas.DRAIN,
          body=schemas.DRAIN_ACTION, status=202),
    Route('GET', _DRAIN + '/servers', 'drains:show', drains.servers,
          'List the servers of a drain', schemas.DRAIN_SERVERS,
          schemas.DRAIN_SERVERS_QUERY),
    Route('GET', _SERVER, 'drains:show', drains.show_server,
          'Show a server of a drain', schemas.DRAIN_SERVER),
    Route('PATCH', _SERVER, 'drains:update', drains.update_server,
          'Skip a server of a drain, or change its position or choice',
          schemas.DRAIN_SERVER, body=schemas.DRAIN_SERVER_UPDATE),
    Route('GET', _DRAIN + '/events', 'drains:show', drains.events,
          'List the events of a drain, the newest first', schemas.EVENTS,
          schemas.PAGE),
    Route('GET', '/v1/hosts', 'hosts:list', hosts.index,
          'List hosts by name', schemas.HOSTS, schemas.PAGE),
    Route('GET', '/v1/hosts/{name}', 'hosts:show', hosts.show,
          'Show a host', schemas.HOST_SHOW),
    Route('PATCH', '/v1/hosts/{name}', 'hosts:update', hosts.update,
          'Change the limits of a host', schemas.HOST_SHOW,
          body=schemas.HOST_UPDATE, if_match=True),
    Route('GET', '/v1/services', 'services:list', hosts.services,
          'List the engines', schemas.SERVICES),
    Route('GET', '/v1/replicas', 'replicas:list', hosts.replicas,
          'List prepared replicas of disks', schemas.REPLICAS,
          schemas.REPLICAS_QUERY),
)
