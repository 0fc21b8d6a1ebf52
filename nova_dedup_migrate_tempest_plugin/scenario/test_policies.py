# SPDX-License-Identifier: Apache-2.0
"""What the controller's API refuses, and to whom."""

from oslo_utils import uuidutils
from tempest.common import utils
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


class RoleTest(controller.ControllerScenario):
    """A reader, a manager, and their equals of another project."""

    credentials = ['primary', 'admin', 'alt', 'project_reader',
                   'project_manager', 'project_alt_reader',
                   'project_alt_manager']

    @classmethod
    def setup_clients(cls):
        super().setup_clients()
        cls.reader, cls.manager, cls.other_reader, cls.other_manager = (
            manager.dedup_migrate.ControllerClient() for manager in (
                cls.os_project_reader, cls.os_project_manager,
                cls.os_project_alt_reader, cls.os_project_alt_manager))

    def assert_forbidden(self, client, migration):
        """What every role in a project lacks."""
        host = 'some-host'
        for call, arguments in (
                (client.show_report, {'uuid': migration}),
                (client.list_hosts, {}), (client.show_host, {'name': host}),
                (client.list_services, {}), (client.list_replicas, {}),
                (client.list_drains, {}),
                (client.create_drain, {'host': host}),
                (client.show_drain, {'uuid': migration}),
                (client.cancel_drain, {'uuid': migration}),
                (client.delete_drain, {'uuid': migration}),
                (client.create_estimate, {'host': host})):
            self.assertRaises(exceptions.Forbidden, call, **arguments)

    @decorators.attr(type=['slow', 'multinode', 'negative'])
    @decorators.idempotent_id('0d516a7e-8f92-43a4-8fb5-3a4b5c6d7e05')
    @utils.services('compute', 'network')
    def test_roles(self):
        server, guest = self.boot()
        self.migrate(server)
        self.verify(guest)
        server = server['id']
        migration = self.reported({'id': server})['uuid']
        for client in (self.reader, self.member, self.manager):
            owned, = client.list_migrations(server)
            self.assertEqual((migration, None, None), (
                owned['uuid'], owned['source'], owned['destination']))
            self.assertEqual(owned, client.show_migration(migration))
            client.list_rounds(migration)
            self.assert_forbidden(client, migration)
        for client in (self.reader, self.member):
            self.assertRaises(exceptions.Forbidden, client.create_estimate,
                              server_id=server)
            self.assertRaises(exceptions.Forbidden, client.list_estimates)
        made = self._estimate(self.manager, server)
        self.assertEqual('done', made['state'], made)
        self.assertIn(made['id'], [
            one['id'] for one in self.manager.list_estimates()])
        for client in (self.reader, self.member):
            self.assertRaises(exceptions.Forbidden, client.show_estimate,
                              made['id'])
        # To another project there is no such server.
        for client in (self.other_reader, self.other_manager):
            self.assertEqual([], client.list_migrations(server))
            for call in (client.show_migration, client.list_rounds):
                self.assertRaises(exceptions.NotFound, call, migration)
            self.assert_forbidden(client, migration)
        self.assertRaises(exceptions.NotFound,
                          self.other_manager.show_estimate, made['id'])
        self.assertEqual([], self.other_manager.list_estimates())
        refused = self._estimate(self.other_manager, server)
        self.assertEqual('failed', refused['state'], refused)
        self.assertIsNone(refused['servers'])

    def _estimate(self, client, server):
        """Request an estimate; return it when it is made."""
        made = client.create_estimate(server_id=server)['id']
        return self.wait_for('estimate %s' % made,
                             lambda: client.show_estimate(made),
                             ('done', 'failed'))
