# SPDX-License-Identifier: Apache-2.0
"""The emulated OpenStack with users, as Horizon needs it.

Each user has a token of his own, which Keystone's middleware can validate,
and roles in one project.  Passwords are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
import json
import time
from typing import Any

import webob

from testkit import openstack

PROJECT = 'p'
_PREFIX = 'token-of-'


class OpenStack(openstack.OpenStack):
    """:ivar users: name -> roles in the project"""

    def __init__(self, hosts: int = 3) -> None:
        super().__init__(hosts)
        self.users: dict[str, tuple[str, ...]] = {
            'dedup': ('admin', 'service')}

    def routes(self) -> list[tuple[str, Callable[..., webob.Response]]]:
        return [
            ('/v3/auth/tokens', self._tokens),
            ('/v3/auth/projects', self._projects),
            (r'/v3/users/([^/]+)/projects', self._projects_of),
            ('/v3/projects', self._projects),
            ('/compute/v2.1/flavors/detail', self._flavors),
            (r'/compute/v2.1/servers/[^/]+/os-volume_attachments',
             lambda request: _json({'volumeAttachments': []})),
            (r'/compute/v2.1/servers/[^/]+/os-security-groups',
             lambda request: _json({'security_groups': []})),
            *super().routes()]

    def _tokens(self, request: webob.Request) -> webob.Response:
        if request.method == 'POST':
            identity = request.json['auth']['identity']
            if 'token' in identity['methods']:
                user = self._user(identity['token']['id'])
            else:
                given = identity['password']['user']
                user = given.get('name') or given.get('id')
            scoped = 'scope' in request.json['auth']
        else:
            user = self._user(request.headers['X-Subject-Token'])
            scoped = True
        if user not in self.users:
            # As Keystone: a token that is looked at is not found.
            code = 404 if request.method in ('GET', 'HEAD') else 401
            return _json({'error': {'code': code, 'message': 'no such user'}},
                         code)
        if request.method == 'DELETE':
            return webob.Response(status=204)
        made = self._token(request)
        body = json.loads(made.body)
        token = body['token']
        token['user'].update(id=user, name=user)
        token['roles'] = [{'id': role, 'name': role}
                          for role in self.users[user]]
        token['issued_at'] = time.strftime('%Y-%m-%dT%H:%M:%S.000000Z',
                                           time.gmtime())
        if not scoped:
            for name in ('project', 'roles', 'catalog'):
                del token[name]
        response = _json(body, 201 if request.method == 'POST' else 200)
        response.headers['X-Subject-Token'] = _PREFIX + user
        return response

    @staticmethod
    def _user(token: str) -> str:
        return token.removeprefix(_PREFIX) if token.startswith(
            _PREFIX) else ''

    def _projects_of(self, request: webob.Request, user: str
                     ) -> webob.Response:
        return self._projects(request)

    def _projects(self, request: webob.Request) -> webob.Response:
        return _json({'links': {'self': request.url}, 'projects': [{
            'id': PROJECT, 'name': 'service', 'domain_id': 'default',
            'enabled': True, 'links': {}}]})

    def _servers(self, request: webob.Request) -> webob.Response:
        response = super()._servers(request)
        body = json.loads(response.body)
        for server in body['servers']:
            _complete(server)
        return _json(body)

    def _server_show(self, request: webob.Request, server_id: str
                     ) -> webob.Response:
        response = super()._server_show(request, server_id)
        if response.status_int != 200:
            return response
        body = json.loads(response.body)
        _complete(body['server'])
        return _json(body)

    def _flavors(self, request: webob.Request) -> webob.Response:
        return _json({'flavors': [{
            'id': '1', 'name': 'small', 'ram': 512, 'vcpus': 1, 'disk': 1,
            'OS-FLV-EXT-DATA:ephemeral': 0, 'swap': 0, 'links': [],
            'os-flavor-access:is_public': True, 'extra_specs': {}}]})


def _complete(server: dict[str, Any]) -> None:
    """Add what Horizon's own pages read of a server."""
    server.update({
        'image': '', 'addresses': {}, 'metadata': {}, 'links': [],
        'user_id': 'dedup', 'created': '2026-11-01T09:00:00Z',
        'updated': '2026-11-01T09:00:00Z', 'locked': False,
        'key_name': None, 'description': None, 'fault': {},
        'progress': 0, 'config_drive': '', 'security_groups': [],
        'os-extended-volumes:volumes_attached': [],
        'OS-EXT-AZ:availability_zone': 'nova',
        'OS-EXT-SRV-ATTR:hypervisor_hostname': server[
            'OS-EXT-SRV-ATTR:host'],
        'OS-EXT-SRV-ATTR:instance_name': 'instance-1',
        'OS-SRV-USG:launched_at': '2026-11-01T09:00:10.000000'})


def _json(value: Any, status: int = 200) -> webob.Response:
    return webob.Response(status=status, content_type='application/json',
                          charset=None, body=json.dumps(value).encode())
