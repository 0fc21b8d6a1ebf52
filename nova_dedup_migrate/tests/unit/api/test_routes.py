# SPDX-License-Identifier: Apache-2.0
"""Each route: a policy, a documented response, limits."""

from unittest import mock

import jsonschema

from nova_dedup_migrate.api import app
from nova_dedup_migrate.api import context
from nova_dedup_migrate.api import openapi
from nova_dedup_migrate.api import routes
from nova_dedup_migrate.policies import rules
from nova_dedup_migrate.tests import controller
from nova_dedup_migrate.tests.unit.api import documentation

ID = '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11'


def path(route):
    return (route.path.replace('{name}', 'compute1')
            .replace('{uuid}', ID).replace('{id}', ID)
            .replace('{server}', ID))


class PolicyTest(controller.ApiTestCase):

    def test_each_route_enforces_its_policy(self):
        known = {rule.name for rule in rules.list_rules()}
        for route in routes.ROUTES:
            self.assertIn('dedup_migrate:' + route.policy, known)
            with mock.patch.object(context.RequestContext, 'may',
                                   autospec=True,
                                   return_value=False) as may:
                self.call(route.method, path(route), status=403)
            self.assertEqual(route.policy, may.call_args.args[1])

    def test_no_role_no_answer(self):
        for route in routes.ROUTES:
            self.call(route.method, path(route), token='eve:red:none',
                      status=403)

    def test_no_token_no_answer(self):
        for route in routes.ROUTES:
            self.call(route.method, path(route), token=None, status=401)

    def test_each_policy_names_routes_that_are_there(self):
        there = {(route.method, route.path) for route in routes.ROUTES}
        for rule in rules.list_rules():
            for one in getattr(rule, 'operations', ()):
                self.assertIn((one['method'], one['path']), there)

    def test_each_route_is_documented_at_its_policy(self):
        documented = {(one['method'], one['path'])
                      for rule in rules.list_rules()
                      for one in getattr(rule, 'operations', ())}
        self.assertEqual({(route.method, route.path)
                          for route in routes.ROUTES}, documented)

    def test_admins_alone_see_hosts(self):
        for route in routes.ROUTES:
            if route.path.startswith(('/v1/hosts', '/v1/drains',
                                      '/v1/services', '/v1/replicas')):
                self.call(route.method, path(route), status=403,
                          token=controller.MANAGER)


class LimitsTest(controller.ApiTestCase):

    def test_unknown_query(self):
        for route in routes.ROUTES:
            response = self.call(route.method, path(route) + '?zzz=1',
                                 body={}, status=400)
            self.assertIn('zzz', response.text)

    def test_twice(self):
        self.call('GET', '/v1/hosts?limit=1&limit=2', status=400)

    def test_large_body(self):
        for route in routes.ROUTES:
            self.call(route.method, path(route),
                      body=b' ' * (app.MAX_BODY + 1), status=413)

    def test_bodies_that_are_none(self):
        for body in (b'', b'{', b'\xff', b'[' * 60000, b'NaN', b'[]',
                     b'{"drain": {"host": "a/b"}}', b'"\\ud800"'):
            self.call('POST', '/v1/drains', body=body, status=400)

    def test_media_type(self):
        response = self.call('POST', '/v1/drains', body={},
                             headers={'Content-Type': 'text/plain'})
        self.assertEqual(415, response.status_int)

    def test_method(self):
        response = self.call('PUT', '/v1/drains', status=405)
        self.assertEqual({'GET', 'POST'},
                         set(response.headers['Allow'].split(', ')))

    def test_markers(self):
        for route in routes.ROUTES:
            if 'marker' in route.query and '{' not in route.path:
                response = self.call(
                    route.method, route.path + '?marker='
                    + '9' * 50)
                self.assertIn(response.status_int, (200, 400))
        for marker in ('x', '-1', '1.5'):
            self.call('GET', '/v1/drains?marker=' + marker, status=400)
        for marker in ('5', 'nan_1', '1_x', '1' * 20 + '_1'):
            self.call('GET', '/v1/migrations?changes-since='
                      '2026-01-01T00:00:00Z&marker=' + marker, status=400)

    def test_limit(self):
        for limit in ('0', '1001', '99999', 'x', '-1', ''):
            self.call('GET', '/v1/hosts?limit=' + limit, status=400)

    def test_versions(self):
        for version, status in (('1.0', 200), ('1.99', 406), ('x', 400),
                                ('latest', 200)):
            response = self.call(
                'GET', '/v1/hosts', status=status, headers={
                    'OpenStack-API-Version': 'dedup-migrate ' + version})
            self.assertEqual('dedup-migrate 1.0',
                             response.headers['OpenStack-API-Version'])


class RateLimitTest(controller.ApiTestCase):
    options = {'api_rate_limit': 3}

    def test_each_user_has_his_own(self):
        for _ in range(3):
            self.call('GET', '/v1/hosts', status=200)
        response = self.call('GET', '/v1/hosts', status=429)
        self.assertGreater(int(response.headers['Retry-After']), 0)
        self.call('GET', '/v1/migrations', token=controller.READER,
                  status=200)
        self.call('GET', '/', token=None, status=200)


class DocumentTest(controller.ApiTestCase):

    def test_schemas_are_valid(self):
        for schema in app._schemas():
            jsonschema.Draft202012Validator.check_schema(schema)

    def test_document(self):
        found = self.call('GET', '/v1/openapi.json', token=None,
                          status=200).json
        self.assertEqual(openapi.document(), found)
        self.assertEqual(
            len(routes.ROUTES),
            len({one['operationId'] for methods in found['paths'].values()
                 for one in methods.values()}))

    def test_health(self):
        # The tables were made without the history of the schema.
        self.assertIn('db sync', self.call('GET', '/healthcheck',
                                           token=None, status=503).text)

    def test_documentation(self):
        self.assertEqual(
            documentation.text(), documentation.PATH.read_text(),
            'run python -m nova_dedup_migrate.tests.unit.api.documentation')
