# SPDX-License-Identifier: Apache-2.0
"""Reports of live migrations, and predictions, by the controller's API."""

from tempest import config
from tempest.common import utils
from tempest.lib import decorators
from tempest.lib import exceptions
import testtools

from nova_dedup_migrate_tempest_plugin.scenario import base
from nova_dedup_migrate_tempest_plugin.scenario import controller

CONF = config.CONF
#: Share of what the way there leaves out that the way back has to leave out.
#: The guest goes on meanwhile, and reuses pages.
_AS_MUCH = 0.8


class ReportTest(controller.ControllerScenario):

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('4c1b8ff2-0d0b-4be8-a1e0-0f4f5f9f7d01')
    @utils.services('compute', 'network')
    def test_report(self):
        """A migration is reported, to those who may see it."""
        server, guest = self.boot()
        source = self.get_host_for_server(server['id'])
        destination = self.other_host(server)
        self.migrate(server, destination)
        self.verify(guest)
        shown = self.reported(server)
        self.assertEqual(
            ('completed', source, destination, server['id']),
            (shown['state'], shown['source'], shown['destination'],
             shown['server_id']))
        self.assertGreater(shown['total_time'], 0)
        self.assertGreater(shown['link_bytes'], 0)
        uuid = shown['uuid']
        self.assertEqual(shown, self.controller.show_migration(uuid))
        report = self.controller.show_report(uuid)
        self.assertEqual('completed', report['outcome'])
        self.assertNotEqual([], self.controller.list_rounds(uuid))
        # its owner sees it without hosts
        owned, = self.member.list_migrations(server['id'])
        self.assertEqual((uuid, None, None), (
            owned['uuid'], owned['source'], owned['destination']))
        self.assertRaises(exceptions.Forbidden, self.member.show_report,
                          uuid)
        # and others do not see it
        self.assertEqual([], self.stranger.list_migrations(server['id']))
        self.assertRaises(exceptions.NotFound, self.stranger.show_migration,
                          uuid)

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('f6b3bb6a-6b0e-4f6e-9c39-7c0f3e5a8d02')
    @utils.services('compute', 'network')
    def test_ordinary_migration(self):
        """The strategy "off" makes it an ordinary one, and is the reason."""
        server, guest = self.boot(
            flavor=self.make_flavor(**{base.STRATEGY: 'off'}))
        self.migrate(server)
        self.verify(guest)
        shown = self.reported(server)
        self.assertEqual(0, shown['bytes']['storage'])
        self.assertIn('off', shown['fallback_reason'])

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('0a7b6c2e-5a83-49ab-8c1f-2b7a6f0d9d03')
    @utils.services('compute', 'network', 'volume')
    @testtools.skipUnless(CONF.dedup_migrate.shared_volumes,
                          '[dedup_migrate] shared_volumes is off')
    def test_pages_are_read_from_the_volume(self):
        """What a guest has read from its volume is not sent."""
        server, guest = self.boot_from_volume()
        self.migrate(server)
        self.verify(guest)
        shown = self.reported(server)
        self.assertGreater(
            shown['bytes']['storage'],
            (CONF.dedup_migrate.file_size << 20) // 2 if guest else 0, shown)

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('1b8c7d3f-6b94-4abc-9d20-3c8b7a1e0e05')
    @utils.services('compute', 'network', 'volume')
    @testtools.skipUnless(CONF.dedup_migrate.shared_volumes,
                          '[dedup_migrate] shared_volumes is off')
    def test_the_way_back_saves_as_much(self):
        """The host that it has arrived at has its records, too."""
        server, guest = self.boot_from_volume()
        source = self.get_host_for_server(server['id'])
        saved = []
        for host in self.other_host(server), source:
            self.migrate(server, host)
            # What is read again afterwards would not count.
            self.verify_memory(guest)
            saved.append(self.reported(
                server, len(saved) + 1)['bytes']['storage'])
        self.verify(guest)
        there, back = saved
        self.assertGreater(there, 0)
        self.assertGreaterEqual(back, _AS_MUCH * there)

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('9d0c52b1-8e0a-4d0e-bb6d-5e1c3f2a7d04')
    @utils.services('compute', 'network')
    def test_prediction(self):
        """An estimate for a server, which is not migrated."""
        server, _ = self.boot()
        source = self.get_host_for_server(server['id'])
        made = self.controller.create_estimate(server_id=server['id'])
        shown = self.wait_for(
            'estimate %s' % made['id'],
            lambda: self.controller.show_estimate(made['id']),
            ('done', 'failed'))
        self.assertEqual('done', shown['state'], shown)
        estimate, = shown['servers']
        self.assertEqual((server['id'], []), (
            estimate['server_id'], estimate['blockers']))
        self.assertGreater(estimate['plan']['time']['likely'], 0)
        self.assertIn(estimate['confidence'], ('low', 'medium', 'high'))
        self.assertEqual(source, self.get_host_for_server(server['id']))
        self.assertRaises(exceptions.Forbidden, self.member.create_estimate,
                          server_id=server['id'])
