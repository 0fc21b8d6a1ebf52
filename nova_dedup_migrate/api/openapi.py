# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI 3.1 document, made of the routes."""

from __future__ import annotations

import functools
import re
from typing import Any

from nova_dedup_migrate.api import routes
from nova_dedup_migrate.api import schemas
from nova_dedup_migrate.api import versions

_ERRORS = {'400': 'The request is malformed.',
           '401': 'There is no valid token.',
           '403': 'A policy does not permit it.',
           '404': 'There is nothing of that name, or it is not yours.',
           '406': 'The microversion is not supported.',
           '429': 'Too many requests.',
           '503': 'The database is not available.'}
_ERRORS_OF_CHANGES = {
    '409': 'The state does not permit it.',
    '413': 'The body is too large.',
    '415': 'The body is not application/json.'}


@functools.cache
def document() -> dict[str, Any]:
    """Return the document; callers must not change it."""
    paths: dict[str, Any] = {}
    for route in routes.ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = (
            _operation(route))
    return {
        'openapi': '3.1.0',
        'info': {'title': 'nova-dedup-migrate', 'version': versions.MAX,
                 'license': {'name': 'Apache-2.0',
                             'identifier': 'Apache-2.0'},
                 'description': 'Live migrations, estimates and drains of '
                                'hosts. Sizes are bytes, times seconds, '
                                'rates bytes per second.'},
        'servers': [{'url': '/'}],
        'security': [{'token': []}],
        'components': {
            'securitySchemes': {'token': {
                'type': 'apiKey', 'in': 'header', 'name': 'X-Auth-Token'}},
            'schemas': {'Errors': schemas.ERRORS},
            'responses': {
                status: {'description': text, 'content': {
                    'application/json': {'schema': {
                        '$ref': '#/components/schemas/Errors'}}}}
                for status, text in {**_ERRORS, **_ERRORS_OF_CHANGES,
                                     '412': 'It has been changed since.'
                                     }.items() if status != '401'}
            | {'401': {'description': _ERRORS['401']}}},
        'paths': paths}


def _operation(route: routes.Route) -> dict[str, Any]:
    success: dict[str, Any] = {'description': 'Success.'}
    if route.response is not None:
        success['content'] = _json(route.response)
    answers = {str(route.status): success}
    if route.path == '/v1/drains' and route.method == 'POST':
        answers['200'] = {**success,
                          'description': 'It was there already.'}
    wanted = dict(_ERRORS)
    if route.method != 'GET':
        wanted.update(_ERRORS_OF_CHANGES)
    if route.if_match:
        wanted['412'] = ''
    for status in wanted:
        answers[status] = {'$ref': '#/components/responses/' + status}
    made: dict[str, Any] = {
        'operationId': operation_id(route), 'summary': route.summary,
        'tags': [route.path.split('/')[2]],
        'x-policy': 'dedup_migrate:' + route.policy,
        'parameters': _parameters(route), 'responses': answers}
    if route.body is not None:
        made['requestBody'] = {'required': True,
                               'content': _json(route.body)}
    return made


def operation_id(route: routes.Route) -> str:
    """Return a name for an operation, such as get_v1_drains_id."""
    return re.sub('[^a-z0-9]+', '_',
                  (route.method + route.path).lower()).strip('_')


def _json(schema: Any) -> dict[str, Any]:
    return {'application/json': {'schema': schema}}


def _parameters(route: routes.Route) -> list[dict[str, Any]]:
    made = [{'name': name, 'in': 'path', 'required': True,
             'schema': routes.PARAMETERS[name]}
            for name in re.findall(r'{(\w+)}', route.path)]
    made += [{'name': name, 'in': 'query', 'required': False,
              'schema': schema} for name, schema in route.query.items()]
    made.append({'name': versions.HEADER, 'in': 'header',
                 'required': False, 'schema': {
                     'type': 'string', 'enum': [
                         '%s %s' % (versions.SERVICE_TYPE, one)
                         for one in versions.VERSIONS]}})
    if route.if_match:
        made.append({'name': 'If-Match', 'in': 'header', 'required': False,
                     'schema': {'type': 'string',
                                'pattern': '^"[0-9]{1,9}"$'}})
    return made
