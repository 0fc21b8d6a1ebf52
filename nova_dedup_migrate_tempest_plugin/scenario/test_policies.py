# SPDX-License-Identifier: Apache-2.0
"""What the controller's API refuses, and to whom."""

from oslo_utils import uuidutils
from tempest.lib import decorators
from tempest.lib import exceptions

from nova_dedup_migrate_tempest_plugin.scenario import controller


class PolicyTest(controller.ControllerScenario):

    @decorators.attr(type='negative')
    @decorators.idempotent_id('6f1d2c3b-4a5e-4f60-8b71-9c0d1e2f3a01')
    def test_what_names_hosts_is_for_administrators(self):
        host = self.controller.list_hosts()[0]['name']
        self.assertEqual(host, self.controller.show_host(host)['name'])
        for call, arguments in (
                (self.member.list_hosts, {}),
                (self.member.show_host, {'name': host}),
                (self.member.list_drains, {}),
                (self.member.create_drain, {'host': host}),
                (self.member.create_estimate, {'host': host})):
            self.assertRaises(exceptions.Forbidden, call, **arguments)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('7a2e3d4c-5b6f-4071-9c82-0d1e2f3a4b02')
    def test_requests_that_are_not_as_documented(self):
        for wanted in ({}, {'host': '../etc'}, {'host': 'a', 'unknown': 1},
                       {'host': 'a', 'max_parallel': 0},
                       {'host': 'a', 'on_blocked': 'delete'}):
            self.assertRaises(exceptions.BadRequest,
                              self.controller.create_drain, **wanted)
        self.assertRaises(exceptions.BadRequest,
                          self.controller.show_migration, 'not-a-uuid')

    @decorators.attr(type='negative')
    @decorators.idempotent_id('8b3f4e5d-6c70-4182-8d93-1e2f3a4b5c03')
    def test_what_does_not_exist(self):
        unknown = uuidutils.generate_uuid()
        for call in (self.controller.show_migration,
                     self.controller.show_report,
                     self.controller.show_estimate,
                     self.controller.show_drain):
            self.assertRaises(exceptions.NotFound, call, unknown)
        self.assertEqual([], self.controller.list_migrations(unknown))

    @decorators.attr(type='negative')
    @decorators.idempotent_id('9c405f6e-7d81-4293-9ea4-2f3a4b5c6d04')
    def test_without_a_token(self):
        response, _ = self.controller.raw_request(
            self.controller.base_url.rstrip('/') + '/v1/migrations', 'GET')
        self.assertEqual(401, response.status)
