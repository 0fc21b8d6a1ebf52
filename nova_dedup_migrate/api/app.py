# SPDX-License-Identifier: Apache-2.0
"""The application: finds the route, checks both ways, calls the handler.

It runs behind the middleware of api/deploy.py, which has found out who
sends the request.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import json
from typing import Any

import jsonschema
from jsonschema import validators
import microversion_parse
from oslo_config import cfg
from oslo_db import exception as db_exception
from oslo_log import log as logging
from oslo_policy import policy as oslo_policy
import routes as routing
import webob

from nova_dedup_migrate.api import context as api_context
from nova_dedup_migrate.api import errors
from nova_dedup_migrate.api import request as requests
from nova_dedup_migrate.api import routes
from nova_dedup_migrate.api import versions
from nova_dedup_migrate.db import errors as db_errors
from nova_dedup_migrate.db import facade

LOG = logging.getLogger(__name__)

#: Bytes of a body; the longest valid one has some hundred.
MAX_BODY = 64 * 1024
_TITLES = {400: 'Bad Request', 401: 'Unauthorized',
           403: 'Forbidden', 404: 'Not Found',
           405: 'Method Not Allowed', 406: 'Not Acceptable',
           409: 'Conflict', 412: 'Precondition Failed',
           413: 'Content Too Large', 415: 'Unsupported Media Type',
           429: 'Too Many Requests', 500: 'Internal Server Error',
           503: 'Service Unavailable'}


class Application:
    """WSGI.

    :param conf: oslo.config's ConfigOpts
    :param database: facade.Database
    :param enforcer: of oslo.policy
    """

    def __init__(self, conf: cfg.ConfigOpts, database: facade.Database,
                 enforcer: oslo_policy.Enforcer) -> None:
        self._conf = conf
        self._database = database
        self._enforcer = enforcer
        self._mapper = routing.Mapper(register=False)
        self._methods: dict[str, list[str]] = {}
        for number, route in enumerate(routes.ROUTES):
            self._mapper.connect(None, route.path, number=str(number),
                                 conditions={'method': [route.method]})
            self._methods.setdefault(route.path, []).append(route.method)
        self._paths = routing.Mapper(register=False)
        for path in self._methods:
            self._paths.connect(None, path, template=path)
        self._checks = {
            id(schema): validators.validator_for(
                schema, jsonschema.Draft202012Validator)(schema)
            for schema in _schemas()}

    def __call__(self, environ: dict[str, Any],
                 start_response: Callable[..., Any]) -> Any:
        request = webob.Request(environ)
        context = api_context.RequestContext.from_environ(
            environ, enforcer=self._enforcer)
        try:
            response = self._respond(request, context)
        except Exception as error:
            response = _error_response(error, context)
        for name in (versions.HEADER, 'X-OpenStack-Request-ID'):
            response.headers['Vary'] = versions.HEADER
            response.headers[name] = (
                '%s %s' % (versions.SERVICE_TYPE, versions.MAX)
                if name == versions.HEADER else context.request_id)
        return response(environ, start_response)

    def _respond(self, request: webob.Request,
                 context: api_context.RequestContext) -> webob.Response:
        route, path = self._route(request)
        _check_version(request)
        # Before anything that the caller has sent is looked at.
        context.require(route.policy)
        for name, value in path.items():
            self._check(routes.PARAMETERS[name], value,
                        'the path: %s' % name)
        made = route.handler(requests.Request(
            context=context, database=self._database, conf=self._conf,
            path=path, query=self._query(request, route),
            body=self._body(request, route),
            if_match=requests.revision(request.headers.get('If-Match'))
            if route.if_match else None, url=request.path_url))
        self._check_response(route, made)
        response = webob.Response(status=made.status or route.status)
        if made.body is not None:
            response.content_type = 'application/json'
            response.charset = None
            response.body = json.dumps(made.body, allow_nan=False).encode()
        else:
            response.headers.pop('Content-Type', None)
        if made.revision is not None:
            response.headers['ETag'] = '"%d"' % made.revision
        if made.location:
            response.headers['Location'] = (request.application_url
                                            + made.location)
        return response

    def _route(self, request: webob.Request
               ) -> tuple[routes.Route, dict[str, str]]:
        try:
            path = request.path_info
        except UnicodeDecodeError as error:
            raise errors.BadRequest(
                reason='the path is not UTF-8') from error
        found = self._mapper.match(path, {
            'REQUEST_METHOD': request.method})
        if found:
            number = int(found.pop('number'))
            return routes.ROUTES[number], {
                name: found[name] for name in found
                if name in routes.PARAMETERS}
        known = self._paths.match(path)
        if known:
            raise errors.NoSuchMethod(
                path=path, method=request.method,
                allowed=', '.join(self._methods[known['template']]))
        raise errors.NoSuchPath(path=path)

    def _query(self, request: webob.Request, route: routes.Route
               ) -> dict[str, str]:
        found: dict[str, str] = {}
        try:
            items = list(request.GET.items())
        except (UnicodeDecodeError, ValueError) as error:
            raise errors.BadRequest(
                reason='the query is not UTF-8') from error
        for name, value in items:
            if name not in route.query:
                raise errors.BadRequest(
                    reason='the query has the unknown parameter %.40r; '
                    'known: %s' % (name, ', '.join(sorted(route.query))
                                   or 'none'))
            if name in found:
                raise errors.BadRequest(
                    reason='the query has parameter %s twice' % name)
            self._check(route.query[name], value, 'the query: %s' % name)
            found[name] = value
        return found

    def _body(self, request: webob.Request, route: routes.Route) -> Any:
        if (request.content_length or 0) > MAX_BODY:
            raise errors.TooLarge(limit=MAX_BODY)
        if route.body is None:
            return None
        data = request.body_file.read(MAX_BODY + 1)
        if len(data) > MAX_BODY:
            raise errors.TooLarge(limit=MAX_BODY)
        if request.content_type != 'application/json':
            raise errors.WrongMediaType()
        try:
            value = json.loads(data, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise errors.BadRequest(
                reason='the body is no JSON: %s' % error) from error
        self._check(route.body, value, 'the body')
        return value

    def _check(self, schema: Mapping[str, Any], value: Any, what: str
               ) -> None:
        check = self._checks[id(schema)]
        error = jsonschema.exceptions.best_match(check.iter_errors(value))
        if error is not None:
            raise errors.BadRequest(reason='%s%s: %s' % (
                what, ''.join('.%s' % part for part in error.path),
                error.message[:500]))

    def _check_response(self, route: routes.Route,
                        made: requests.Response) -> None:
        how = self._conf.api.response_validation
        if how == 'ignore' or route.response is None:
            return
        error = jsonschema.exceptions.best_match(
            self._checks[id(route.response)].iter_errors(made.body))
        if error is None:
            return
        reason = '%s %s: %s: %s' % (route.method, route.path,
                                    error.json_path, error.message[:500])
        if how == 'error':
            raise errors.MalformedResponse(reason=reason)
        LOG.warning('The response is not as documented: %s. Please report '
                    'this.', reason)


def _schemas() -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = list(routes.PARAMETERS.values())
    for route in routes.ROUTES:
        found += [schema for schema in (route.body, route.response)
                  if schema is not None]
        found += route.query.values()
    return found


def _check_version(request: webob.Request) -> None:
    try:
        microversion_parse.extract_version(
            {name.lower(): value for name, value
             in request.headers.items()}, versions.SERVICE_TYPE,
            versions.VERSIONS)
    except ValueError as error:
        raise errors.NotAcceptable(
            reason='the microversion is not supported, it has to be %s to '
            '%s: %s' % (versions.MIN, versions.MAX, error)) from error
    except TypeError as error:
        raise errors.BadRequest(
            reason='%s is malformed: %s' % (versions.HEADER, error)
        ) from error


def _no_constant(name: str) -> Any:
    raise ValueError('%s is not valid JSON' % name)


def _error_response(error: Exception, context: api_context.RequestContext
                    ) -> webob.Response:
    status, detail = _describe(error)
    if status == 500:
        LOG.exception('Request %s failed', context.request_id)
    response = error_response(status, detail, context.request_id)
    if isinstance(error, errors.NoSuchMethod):
        response.headers['Allow'] = error.allowed
    return response


def error_response(status: int, detail: str, request_id: str
                   ) -> webob.Response:
    """Return a response with the one form that errors have."""
    return webob.Response(
        status=status, content_type='application/json', charset=None,
        body=json.dumps({'errors': [{
            'status': status, 'title': _TITLES[status], 'detail': detail,
            'request_id': request_id}]}).encode())


def _describe(error: Exception) -> tuple[int, str]:
    """Return the status of an error, and what the caller reads."""
    if isinstance(error, errors.ApiError) and error.status != 500:
        return error.status, str(error)
    for kind, status in ((db_errors.NotFound, 404),
                         (db_errors.InvalidMarker, 400),
                         (db_errors.RevisionChanged, 412),
                         (db_errors.Conflict, 409)):
        if isinstance(error, kind):
            return status, str(error)
    if isinstance(error, (db_exception.DBConnectionError,
                          db_exception.DBDeadlock)):
        return 503, 'the database is not available; try again later'
    # Its text may have what the caller must not see.
    return 500, 'the request failed; see the log of the API for its ID'
