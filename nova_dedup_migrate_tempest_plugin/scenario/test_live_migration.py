# SPDX-License-Identifier: Apache-2.0
"""Live migrations with our driver: the instance arrives, its memory is right.

Where the disks are is the cloud's choice: the same tests are migrations on
shared storage, or block migrations.
"""

from tempest import config
from tempest.common import utils
from tempest.common import waiters
from tempest.lib import decorators
from tempest.lib import exceptions
import testtools

from nova_dedup_migrate_tempest_plugin.scenario import base

CONF = config.CONF


class LiveMigrationTest(base.DedupMigrateScenario):

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('2f0a6d5c-7f5e-4b52-9d5b-b1ab3c9b1c01')
    @utils.services('compute', 'network')
    def test_back_and_forth(self):
        """It migrates to another host and back, twice."""
        server, guest = self.boot()
        source = self.get_host_for_server(server['id'])
        for _ in range(2):
            self.migrate(server)
            self.verify(guest)
            self.migrate(server, source)
            self.verify(guest)

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('5b0c62b4-0a0e-4d4e-8a27-6f0f1f0b3c02')
    @utils.services('compute', 'network', 'volume')
    @testtools.skipUnless(
        CONF.compute_feature_enabled.volume_backed_live_migration,
        'live migration of instances that boot from volumes is not available')
    def test_boot_from_volume(self):
        server, guest = self.boot_from_volume()
        self.migrate(server)
        self.verify(guest)

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('8f7a6c1e-2c0f-4a55-9f30-2f5ad1c4e803')
    @utils.services('compute', 'network', 'volume')
    def test_attached_volume(self):
        server, guest = self.boot()
        volume = self.create_volume()
        self.nova_volume_attach(server, volume)
        self.migrate(server)
        self.verify(guest)
        shown = self.servers_client.show_server(server['id'])['server']
        self.assertEqual(
            [volume['id']],
            [attached['id'] for attached in
             shown['os-extended-volumes:volumes_attached']])

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('c1d7f3a8-55b5-4e0b-9f66-3ad1a2b9d004')
    @utils.services('compute', 'network')
    @testtools.skipUnless(CONF.compute_feature_enabled.pause,
                          'instances cannot be paused')
    def test_paused(self):
        """A paused instance stays paused, and continues with its memory."""
        server, guest = self.boot()
        self.admin_servers.pause_server(server['id'])
        waiters.wait_for_server_status(self.servers_client, server['id'],
                                       'PAUSED')
        self.migrate(server, status='PAUSED')
        self.admin_servers.unpause_server(server['id'])
        waiters.wait_for_server_status(self.servers_client, server['id'],
                                       'ACTIVE')
        self.verify(guest)

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('e6a4d2b0-7a3d-4f0c-8d6e-94b7a5c6f105')
    @utils.services('compute', 'network')
    def test_abort(self):
        """An aborted migration leaves the instance on its host, intact."""
        server, guest = self.boot()
        source = self.get_host_for_server(server['id'])
        self.start_migration(server, self.other_host(server))
        aborted = self._abort(server)
        waiters.wait_for_server_status(self.servers_client, server['id'],
                                       'ACTIVE')
        if not aborted:
            self.verify(guest)
            raise self.skipException(
                'the migration was over before it could be aborted')
        self.assertEqual('cancelled', self.last_migration(server)['status'])
        self.assertEqual(source, self.get_host_for_server(server['id']))
        self.verify(guest)
        # and nothing is left that is in the way of the next one
        self.migrate(server)
        self.verify(guest)

    def _abort(self, server):
        """Abort a migration; return whether it was aborted.

        It may be over before.  A migration can be aborted when its status
        is "running"; Nova clears the task state of its instance at the end.
        """
        while self._task_state(server):
            for found in self.admin_servers.list_in_progress_live_migration(
                    server['id'])['migrations']:
                if found['status'] == 'running':
                    try:
                        self.admin_servers.delete(
                            'servers/%s/migrations/%s' % (
                                server['id'], found['id']))
                    except (exceptions.NotFound, exceptions.BadRequest):
                        # it has ended meanwhile
                        return False
                    waiters.wait_for_server_status(
                        self.servers_client, server['id'], 'ACTIVE')
                    return self.ended_migration(server)['status'] != (
                        'completed')
        return False

    def _task_state(self, server):
        return self.servers_client.show_server(
            server['id'])['server']['OS-EXT-STS:task_state']
