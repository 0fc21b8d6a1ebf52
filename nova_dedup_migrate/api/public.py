# SPDX-License-Identifier: Apache-2.0
"""What needs no token: versions, the OpenAPI document, the health check."""

from __future__ import annotations

from collections.abc import Callable
import json
from typing import Any

import sqlalchemy as sa
import webob

from nova_dedup_migrate.api import openapi
from nova_dedup_migrate.api import versions
from nova_dedup_migrate.db import errors
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import schema

PATHS = ('/', '/v1', '/v1/openapi.json', '/healthcheck')


class Public:
    """WSGI middleware that answers these paths itself.

    :param application: for all others
    :param database: facade.Database
    """

    def __init__(self, application: Callable[..., Any],
                 database: facade.Database) -> None:
        self._application = application
        self._database = database

    def __call__(self, environ: dict[str, Any],
                 start_response: Callable[..., Any]) -> Any:
        path = environ.get('PATH_INFO') or '/'
        if path != '/':
            path = path.rstrip('/')
        if path not in PATHS:
            return self._application(environ, start_response)
        request = webob.Request(environ)
        if request.method not in ('GET', 'HEAD'):
            response = webob.Response(status=405)
            response.headers['Allow'] = 'GET, HEAD'
        elif path == '/healthcheck':
            response = self._health()
        else:
            response = _json(openapi.document()
                             if path == '/v1/openapi.json'
                             else _versions(request))
        return response(environ, start_response)

    def _health(self) -> webob.Response:
        """200 if the database answers and has the schema of this release."""
        try:
            with self._database.read() as session:
                session.execute(sa.text('SELECT 1'))
            schema.require(self._database)
        except errors.SchemaOutdated as error:
            return webob.Response(status=503, content_type='text/plain',
                                  charset='utf-8', text='%s\n' % error)
        except Exception:
            return webob.Response(
                status=503, content_type='text/plain', charset='utf-8',
                text='the database does not answer\n')
        return webob.Response(status=200, content_type='text/plain',
                              charset='utf-8', text='OK\n')


def _versions(request: webob.Request) -> dict[str, Any]:
    return {'versions': [{
        'id': 'v1.0', 'status': 'CURRENT', 'min_version': versions.MIN,
        'max_version': versions.MAX, 'version': versions.MAX,
        'links': [{'rel': 'self',
                   'href': request.application_url + '/v1'}]}]}


def _json(value: Any) -> webob.Response:
    return webob.Response(content_type='application/json', charset=None,
                          body=json.dumps(value).encode())
