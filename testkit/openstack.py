# SPDX-License-Identifier: Apache-2.0
"""Keystone, Nova and Placement as far as the controller needs them.

An HTTP server in this process.  Servers migrate by the clock: each live
migration waits until its host has a slot, then takes the seconds that
the server has.  Nothing is migrated; for tests and for measurements of
the controller itself.
"""

from collections.abc import Callable
import dataclasses
import datetime
import json
import re
import socketserver
import threading
import time
from typing import Any
import uuid
from wsgiref import simple_server

import webob

_ABORTABLE = ('queued', 'preparing', 'running')
MICROVERSION = '2.96'
#: What Placement calls a host has it, what Nova calls it has not.
DOMAIN = '.example'


@dataclasses.dataclass
class Server:
    """:ivar seconds: that its live migration takes
    :ivar fails: how many of its next live migrations fail
    """

    id: str
    name: str
    host: str
    ram: int = 512
    vcpus: int = 1
    project_id: str = 'blue'
    status: str = 'ACTIVE'
    task_state: str | None = None
    power_state: int = 1
    seconds: float = 1.0
    fails: int = 0
    extra_specs: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Migration:
    id: int
    uuid: str
    server: Server
    kind: str
    source: str
    created_at: float
    status: str = 'queued'
    destination: str = ''
    began: float | None = None
    updated_at: float = 0.0
    fails: bool = False


class OpenStack:
    """:ivar servers: by ID
    :ivar requests: (server, action) of each request that was accepted or
        refused, in order
    :ivar on_action: called with (server, action) before a request for an
        action is looked at; a test blocks or raises in it
    :ivar on_request: called with (method, path) when a request arrives
    :ivar lose_answers: whether requests are done and answered with 504
    :ivar slots: live migrations that leave a host at a time
    :ivar held: no live migration ends while it is set
    """

    def __init__(self, hosts: int = 3) -> None:
        self.lock = threading.RLock()
        self.servers: dict[str, Server] = {}
        self.migrations: list[Migration] = []
        self.requests: list[tuple[str, str]] = []
        self.actions: dict[str, list[dict[str, Any]]] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        self.on_action: Callable[[str, str], None] = lambda server, do: None
        self.on_request: Callable[[str, str], None] = lambda how, path: None
        self.lose_answers = False
        #: Status of new live migrations; 'accepted': they do not begin
        self.first_status = 'queued'
        self.slots = 1
        self.held = False
        self.room = True
        #: URLs of other services in the catalog, by type
        self.catalog: dict[str, str] = {}
        #: What Keystone gives to everybody
        self.token = 'token'
        self.order: list[str] = []
        self.most_at_once = 0
        self.hosts = {
            'compute%d' % (number + 1): {
                'id': str(uuid.uuid4()), 'status': 'enabled',
                'disabled_reason': None, 'state': 'up'}
            for number in range(hosts)}
        self._server: Any = None
        self._thread: threading.Thread | None = None

    # For tests

    def add(self, host: str, number: int = 1, **fields: Any
            ) -> list[Server]:
        """Add servers to a host; return them."""
        made = []
        with self.lock:
            for _ in range(number):
                server_id = str(uuid.uuid4())
                made.append(Server(**{
                    'id': server_id, 'host': host,
                    'name': 'server-%d' % len(self.servers), **fields}))
                self.servers[server_id] = made[-1]
        return made

    def on(self, host: str) -> list[Server]:
        """Return the servers of a host."""
        with self.lock:
            self._advance()
            return [one for one in self.servers.values()
                    if one.host == host]

    def start(self) -> None:
        class Threads(socketserver.ThreadingMixIn,
                      simple_server.WSGIServer):
            daemon_threads = True
            request_queue_size = 128

        class Quiet(simple_server.WSGIRequestHandler):
            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = simple_server.make_server(
            '127.0.0.1', 0, self, Threads, Quiet)
        self._thread = threading.Thread(target=self._server.serve_forever,
                                        args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        assert self._thread is not None
        self._thread.join(5)

    @property
    def url(self) -> str:
        return 'http://127.0.0.1:%d' % self._server.server_port

    # Time

    def _advance(self) -> None:
        """Bring migrations to where they are now."""
        now = time.time()
        under_way: dict[str, int] = {}
        for one in self.migrations:
            if one.kind == 'live-migration' and one.status == 'running':
                assert one.began is not None
                if (not self.held
                        and now >= one.began + one.server.seconds):
                    self._end(one, 'error' if one.fails else 'completed',
                              one.began + one.server.seconds)
                else:
                    under_way[one.source] = under_way.get(one.source, 0) + 1
        for one in self.migrations:
            if (one.status == 'queued'
                    and under_way.get(one.source, 0) < self.slots):
                under_way[one.source] = under_way.get(one.source, 0) + 1
                self._begin(one, now)
        self.most_at_once = max([self.most_at_once, *under_way.values()])

    def _begin(self, one: Migration, now: float) -> None:
        others = [name for name, host in self.hosts.items()
                  if name != one.source and host['status'] == 'enabled']
        if not others:
            self._end(one, 'error', now)
            return
        load = {name: 0 for name in others}
        for server in self.servers.values():
            if server.host in load:
                load[server.host] += 1
        one.destination = min(others, key=lambda name: load[name])
        one.status, one.began, one.updated_at = 'running', now, now

    def _end(self, one: Migration, status: str, when: float) -> None:
        one.status, one.updated_at = status, when
        one.server.task_state = None
        one.server.status = ('ACTIVE' if one.server.power_state == 1
                             else 'SHUTOFF')
        if status == 'completed':
            one.server.host = one.destination
            self.order.append(one.server.id)

    # HTTP

    def __call__(self, environ: Any, start_response: Any) -> Any:
        request = webob.Request(environ)
        try:
            response = self._respond(request)
        except Exception as error:
            response = _json({'error': {'message': repr(error)}}, 500)
        return response(environ, start_response)

    def routes(self) -> list[tuple[str, Callable[..., webob.Response]]]:
        """Return (regular expression of a path, what responds)."""
        return [
            ('/', self._identity_versions),
            ('/v3', self._identity_v3),
            ('/v3/auth/tokens', self._token),
            ('/compute/v2.1', self._compute_version),
            ('/compute/v2.1/servers/detail', self._servers),
            (r'/compute/v2.1/servers/([^/]+)', self._server_show),
            (r'/compute/v2.1/servers/([^/]+)/action', self._action),
            (r'/compute/v2.1/servers/([^/]+)/os-instance-actions',
             self._actions),
            (r'/compute/v2.1/servers/([^/]+)/migrations/(\d+)',
             self._abort),
            ('/compute/v2.1/os-migrations', self._migrations),
            ('/compute/v2.1/os-services', self._services),
            (r'/compute/v2.1/os-services/([^/]+)', self._service),
            ('/compute/v2.1/os-server-groups', self._groups),
            ('/placement', self._placement_version),
            ('/placement/allocation_candidates', self._candidates),
            ('/placement/resource_providers', self._providers),
        ]

    def _respond(self, request: webob.Request) -> webob.Response:
        path = request.path
        self.on_request(request.method, path)
        for pattern, function in self.routes():
            found = re.fullmatch(pattern, path.rstrip('/') or '/')
            if found:
                return function(request, *found.groups())
        return _json({'itemNotFound': {'message': path}}, 404)

    def _identity_versions(self, request: webob.Request) -> webob.Response:
        return _json({'versions': {'values': [self._v3()]}}, 300)

    def _identity_v3(self, request: webob.Request) -> webob.Response:
        return _json({'version': self._v3()})

    def _v3(self) -> dict[str, Any]:
        return {'id': 'v3.14', 'status': 'stable', 'links': [
            {'rel': 'self', 'href': self.url + '/v3/'}]}

    def _token(self, request: webob.Request) -> webob.Response:
        def service(kind: str, url: str) -> dict[str, Any]:
            return {'type': kind, 'id': kind, 'name': kind, 'endpoints': [
                {'id': kind + interface, 'interface': interface,
                 'region': 'RegionOne', 'region_id': 'RegionOne',
                 'url': url}
                for interface in ('public', 'internal')]}

        until = time.strftime('%Y-%m-%dT%H:%M:%S.000000Z',
                              time.gmtime(time.time() + 86400))
        response = _json({'token': {
            'methods': ['password'], 'expires_at': until,
            'issued_at': '2026-01-01T00:00:00.000000Z',
            'user': {'id': 'u', 'name': 'dedup', 'domain': {
                'id': 'default', 'name': 'Default'}},
            'project': {'id': 'p', 'name': 'service', 'domain': {
                'id': 'default', 'name': 'Default'}},
            'roles': [{'id': 'r', 'name': 'admin'}], 'catalog': [
                service('identity', self.url + '/v3'),
                service('compute', self.url + '/compute/v2.1'),
                service('placement', self.url + '/placement'),
                *(service(*one) for one in self.catalog.items())]}}, 201)
        response.headers['X-Subject-Token'] = self.token
        return response

    def _compute_version(self, request: webob.Request) -> webob.Response:
        return _json({'version': {
            'id': 'v2.1', 'status': 'CURRENT', 'version': MICROVERSION,
            'min_version': '2.1', 'links': [
                {'rel': 'self', 'href': self.url + '/compute/v2.1/'}]}})

    def _servers(self, request: webob.Request) -> webob.Response:
        with self.lock:
            self._advance()
            host = request.GET.get('host')
            found = sorted((one for one in self.servers.values()
                            if host in (None, one.host)),
                           key=lambda one: one.id)
            marker = request.GET.get('marker')
            if marker:
                found = [one for one in found if one.id > marker]
            page = found[:1000]
            made: dict[str, Any] = {'servers': [_server(one)
                                                for one in page]}
            if len(found) > 1000:
                made['servers_links'] = [{
                    'rel': 'next', 'href': '%s?host=%s&all_tenants=True&'
                    'marker=%s' % (request.path_url, host, page[-1].id)}]
            return _json(made)

    def _server_show(self, request: webob.Request, server_id: str
                     ) -> webob.Response:
        with self.lock:
            self._advance()
            server = self.servers.get(server_id)
            if server is None:
                return _json({'itemNotFound': {
                    'code': 404, 'message': 'no server'}}, 404)
            return _json({'server': _server(server)})

    def _action(self, request: webob.Request, server_id: str
                ) -> webob.Response:
        action = next(iter(request.json))
        name = {'os-migrateLive': 'live-migration', 'migrate': 'migrate',
                'os-stop': 'stop'}.get(action, action)
        self.on_action(server_id, name)
        with self.lock:
            self._advance()
            server = self.servers[server_id]
            self.requests.append((server_id, name))
            if server.task_state is not None or (
                    name == 'live-migration'
                    and server.status not in ('ACTIVE', 'PAUSED')):
                return _json({'conflictingRequest': {
                    'code': 409, 'message': 'the server is %s, %s'
                    % (server.status, server.task_state)}}, 409)
            self.actions.setdefault(server_id, []).append({
                'action': name, 'instance_uuid': server_id,
                'request_id': 'req-%s' % uuid.uuid4(),
                'start_time': _time(time.time()), 'message': None,
                'project_id': 'p', 'user_id': 'u'})
            getattr(self, '_do_' + action.replace('-', '_'))(server)
        if self.lose_answers:
            return _json({'error': {'message': 'no answer'}}, 504)
        return webob.Response(status=202)

    def _make(self, server: Server, kind: str) -> Migration:
        made = Migration(
            len(self.migrations) + 1, str(uuid.uuid4()), server, kind,
            server.host, time.time(), updated_at=time.time(),
            status=self.first_status)
        if server.fails:
            server.fails -= 1
            made.fails = True
        self.migrations.append(made)
        return made

    def _do_os_migrateLive(self, server: Server) -> None:
        server.task_state, server.status = 'migrating', 'MIGRATING'
        self._make(server, 'live-migration')
        self._advance()

    def _do_migrate(self, server: Server) -> None:
        made = self._make(server, 'migration')
        self._begin(made, time.time())
        if made.status == 'running':
            made.status = 'finished'
            server.status = 'VERIFY_RESIZE'
            server.host = made.destination

    def _do_confirmResize(self, server: Server) -> None:
        for one in self.migrations:
            if one.server is server and one.status == 'finished':
                self._end(one, 'confirmed', time.time())

    def _do_os_stop(self, server: Server) -> None:
        server.status, server.power_state = 'SHUTOFF', 4

    def _actions(self, request: webob.Request, server_id: str
                 ) -> webob.Response:
        with self.lock:
            return _json({'instanceActions': list(
                reversed(self.actions.get(server_id, [])))})

    def _abort(self, request: webob.Request, server_id: str, number: str
               ) -> webob.Response:
        with self.lock:
            self._advance()
            found = self.migrations[int(number) - 1]
            if found.status not in _ABORTABLE:
                return _json({'badRequest': {
                    'code': 400, 'message': 'Migration is in invalid state: '
                    + found.status}}, 400)
            self._end(found, 'cancelled', time.time())
        return webob.Response(status=202)

    def _migrations(self, request: webob.Request) -> webob.Response:
        wanted = request.GET
        since = wanted.get('changes-since')
        after = 0.0 if since is None else datetime.datetime.fromisoformat(
            since.replace('Z', '+00:00')).timestamp()
        with self.lock:
            self._advance()
            found = [
                one for one in self.migrations
                if one.updated_at >= after
                and wanted.get('source_compute') in (None, one.source)
                and wanted.get('instance_uuid') in (None, one.server.id)
                and wanted.get('migration_type') in (None, one.kind)
                and (wanted.get('host') is None or wanted['host']
                     in (one.source, one.destination))]
            return _json({'migrations': [{
                'id': one.id, 'uuid': one.uuid, 'status': one.status,
                'instance_uuid': one.server.id,
                'migration_type': one.kind, 'source_compute': one.source,
                'dest_compute': one.destination or None,
                'created_at': _time(one.created_at),
                'updated_at': _time(one.updated_at), 'user_id': 'u',
                'project_id': 'p'} for one in found]})

    def _services(self, request: webob.Request) -> webob.Response:
        wanted = request.GET.get('host')
        with self.lock:
            return _json({'services': [{
                'id': host['id'], 'binary': 'nova-compute', 'host': name,
                'zone': 'nova', 'status': host['status'],
                'state': host['state'], 'forced_down': False,
                'disabled_reason': host['disabled_reason'],
                'updated_at': _time(time.time())}
                for name, host in self.hosts.items()
                if wanted in (None, name)]})

    def _service(self, request: webob.Request, number: str
                 ) -> webob.Response:
        with self.lock:
            for name, host in self.hosts.items():
                if host['id'] == number:
                    host['status'] = request.json['status']
                    host['disabled_reason'] = request.json.get(
                        'disabled_reason')
                    return _json({'service': {
                        'id': number, 'host': name,
                        'binary': 'nova-compute', **host}})
        return _json({'itemNotFound': {'message': 'no service'}}, 404)

    def _groups(self, request: webob.Request) -> webob.Response:
        first = int(request.GET.get('offset', 0))
        last = first + min(int(request.GET.get('limit', 1000)), 1000)
        return _json({'server_groups': [
            {'id': group, **values}
            for group, values in list(self.groups.items())[first:last]]})

    def _placement_version(self, request: webob.Request) -> webob.Response:
        return _json({'versions': [{
            'id': 'v1.0', 'max_version': '1.39', 'min_version': '1.0',
            'status': 'CURRENT', 'links': [
                {'rel': 'self', 'href': self.url + '/placement'}]}]})

    def _candidates(self, request: webob.Request) -> webob.Response:
        with self.lock:
            return _json({'allocation_requests': [
                {'allocations': {host['id']: {'resources': {}}}}
                for host in self.hosts.values()
                if host['status'] == 'enabled'
                or 'required' not in request.GET] if self.room else [],
                'provider_summaries': {}})

    def _providers(self, request: webob.Request) -> webob.Response:
        name = request.GET['name']
        host = self.hosts.get(name.removesuffix(DOMAIN))
        return _json({'resource_providers': [
            {'uuid': host['id'], 'name': name}]
            if host and name.endswith(DOMAIN) else []})


def _server(one: Server) -> dict[str, Any]:
    return {
        'id': one.id, 'name': one.name, 'status': one.status,
        'tenant_id': one.project_id, 'OS-EXT-SRV-ATTR:host': one.host,
        'OS-EXT-SRV-ATTR:hypervisor_hostname': one.host + DOMAIN,
        'OS-EXT-STS:task_state': one.task_state,
        'OS-EXT-STS:power_state': one.power_state,
        'OS-EXT-STS:vm_state': 'active',
        'flavor': {'ram': one.ram, 'vcpus': one.vcpus, 'disk': 1,
                   'ephemeral': 0, 'swap': 0, 'original_name': 'small',
                   'extra_specs': one.extra_specs}}


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%S.%f')


def _json(value: Any, status: int = 200) -> webob.Response:
    return webob.Response(status=status, content_type='application/json',
                          charset=None, body=json.dumps(value).encode())
