# SPDX-License-Identifier: Apache-2.0
"""The controller's API for openstacksdk: proxy and resources.

::

    connection.add_service(sdk.DESCRIPTION)
    for one in connection.dedup_migrate.migrations(state='running'): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from openstack import exceptions
from openstack import proxy
from openstack import resource
from openstack import service_description
from openstack import utils

SERVICE_TYPE = 'dedup-migrate'
_VERSION = '1.0'


class _Resource(resource.Resource):
    # Fields of later microversions are shown as well.
    _allow_unknown_attrs_in_body = True
    _max_microversion = _VERSION
    commit_method = 'PATCH'


class Migration(_Resource):
    resource_key = 'migration'
    resources_key = 'migrations'
    base_path = '/migrations'
    allow_list = True
    allow_fetch = True
    _query_mapping = resource.QueryParameters(
        'state', 'host', 'server', 'project', 'drain',
        changes_since='changes-since')
    uuid = resource.Body('uuid', alternate_id=True)


class Round(_Resource):
    resources_key = 'rounds'
    base_path = '/migrations/%(migration_id)s/rounds'
    allow_list = True
    _query_mapping = resource.QueryParameters(
        include_pagination_defaults=False)
    migration_id = resource.URI('migration_id')


class Report(_Resource):
    resource_key = 'report'
    base_path = '/migrations/%(migration_id)s/report'
    allow_fetch = True
    requires_id = False
    migration_id = resource.URI('migration_id')


class Estimate(_Resource):
    resource_key = 'estimate'
    resources_key = 'estimates'
    base_path = '/estimates'
    allow_list = True
    allow_fetch = True
    allow_create = True
    _query_mapping = resource.QueryParameters('state')
    server_id = resource.Body('server_id')
    host = resource.Body('host')


class Drain(_Resource):
    resource_key = 'drain'
    resources_key = 'drains'
    base_path = '/drains'
    allow_list = True
    allow_fetch = True
    allow_create = True
    allow_commit = True
    allow_delete = True
    _query_mapping = resource.QueryParameters('state', 'host')
    host = resource.Body('host')
    dry_run = resource.Body('dry_run')
    order = resource.Body('order')
    max_parallel = resource.Body('max_parallel')
    link_rate = resource.Body('link_rate')
    deadline = resource.Body('deadline')
    on_blocked = resource.Body('on_blocked')
    servers = resource.Body('servers', type=list)

    def act(self, session: Any, body: dict[str, Any]) -> None:
        """Send an action.

        :param body: as {'pause': None}
        """
        response = session.post(
            utils.urljoin(self.base_path, self.id, 'action'), json=body,
            microversion=_VERSION)
        exceptions.raise_from_response(response)
        self._translate_response(response)


class DrainServer(_Resource):
    resource_key = 'server'
    resources_key = 'servers'
    base_path = '/drains/%(drain_id)s/servers'
    allow_list = True
    allow_fetch = True
    allow_commit = True
    _query_mapping = resource.QueryParameters('state')
    drain_id = resource.URI('drain_id')
    server_id = resource.Body('server_id', alternate_id=True)
    skip = resource.Body('skip')
    position = resource.Body('position')
    on_blocked = resource.Body('on_blocked')


class Event(_Resource):
    resources_key = 'events'
    base_path = '/drains/%(drain_id)s/events'
    allow_list = True
    drain_id = resource.URI('drain_id')


class Host(_Resource):
    resource_key = 'host'
    resources_key = 'hosts'
    base_path = '/hosts'
    allow_list = True
    allow_fetch = True
    allow_commit = True
    name = resource.Body('name', alternate_id=True)
    max_outbound = resource.Body('max_outbound')
    link_rate_limit = resource.Body('link_rate_limit')


class Service(_Resource):
    resources_key = 'services'
    base_path = '/services'
    allow_list = True
    _query_mapping = resource.QueryParameters(
        include_pagination_defaults=False)


class Replica(_Resource):
    resources_key = 'replicas'
    base_path = '/replicas'
    allow_list = True
    _query_mapping = resource.QueryParameters('host', 'server')


class Proxy(proxy.Proxy):
    """The calls of the API; pages are followed."""

    def migrations(self, **query: Any) -> Iterator[Migration]:
        return self._list(Migration, **query)

    def get_migration(self, uuid: str) -> Migration:
        return self._get(Migration, uuid)

    def rounds(self, uuid: str) -> Iterator[Round]:
        return self._list(Round, migration_id=uuid)

    def get_report(self, uuid: str) -> Report:
        return self._get(Report, requires_id=False, migration_id=uuid)

    def create_estimate(self, **values: Any) -> Estimate:
        return self._create(Estimate, **values)

    def get_estimate(self, estimate_id: str) -> Estimate:
        return self._get(Estimate, estimate_id)

    def drains(self, **query: Any) -> Iterator[Drain]:
        return self._list(Drain, **query)

    def get_drain(self, drain_id: str) -> Drain:
        return self._get(Drain, drain_id)

    def create_drain(self, **values: Any) -> Drain:
        return self._create(Drain, **values)

    def update_drain(self, drain_id: str, **values: Any) -> Drain:
        return self._update(Drain, drain_id, **values)

    def delete_drain(self, drain_id: str) -> None:
        self._delete(Drain, drain_id, ignore_missing=False)

    def act_on_drain(self, drain_id: str, body: dict[str, Any]) -> Drain:
        """Pause, resume, cancel or retry a drain; return it."""
        found = self._get_resource(Drain, drain_id)
        found.act(self, body)
        return found

    def drain_servers(self, drain_id: str, **query: Any
                      ) -> Iterator[DrainServer]:
        return self._list(DrainServer, drain_id=drain_id, **query)

    def update_drain_server(self, drain_id: str, server_id: str,
                            **values: Any) -> DrainServer:
        return self._update(DrainServer, server_id, drain_id=drain_id,
                            **values)

    def drain_events(self, drain_id: str, **query: Any
                     ) -> Iterator[Event]:
        return self._list(Event, drain_id=drain_id, **query)

    def hosts(self, **query: Any) -> Iterator[Host]:
        return self._list(Host, **query)

    def get_host(self, name: str) -> Host:
        return self._get(Host, name)

    def update_host(self, name: str, **values: Any) -> Host:
        return self._update(Host, name, **values)

    def services(self) -> Iterator[Service]:
        return self._list(Service)

    def replicas(self, **query: Any) -> Iterator[Replica]:
        return self._list(Replica, **query)


DESCRIPTION = service_description.ServiceDescription(
    SERVICE_TYPE, supported_versions={'1': Proxy})
