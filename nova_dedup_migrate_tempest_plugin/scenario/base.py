# SPDX-License-Identifier: Apache-2.0
"""What the tests share: an instance, its migration, its memory."""

import io

from oslo_log import log
from tempest import config
from tempest.common import waiters
from tempest.lib.common.utils import data_utils
from tempest.lib.common.utils import test_utils
from tempest.scenario import manager

from nova_dedup_migrate_tempest_plugin import memory

CONF = config.CONF
LOG = log.getLogger(__name__)
#: Of the extra spec of flavors and of the property of images.
STRATEGY = 'dedup_migrate:strategy'
#: States of a live migration that has not ended.
RUNNING = ('accepted', 'queued', 'preparing', 'running',
           'running (post-copy)', 'post-migrating')


class DedupMigrateScenario(manager.ScenarioTest):
    """A cloud with two compute hosts and our driver."""

    credentials = ['primary', 'admin']
    #: block_migration may be "auto" from here on.
    compute_min_microversion = '2.25'

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.service_available.dedup_migrate:
            raise cls.skipException('[service_available] dedup_migrate is '
                                    'off')
        if not CONF.compute_feature_enabled.live_migration:
            raise cls.skipException('live migration is not available')
        if CONF.compute.min_compute_nodes < 2:
            raise cls.skipException('there are fewer than two compute hosts')

    @classmethod
    def setup_clients(cls):
        super().setup_clients()
        cls.admin_servers = cls.os_admin.servers_client
        cls.admin_flavors = cls.os_admin.flavors_client
        cls.admin_services = cls.os_admin.services_client
        cls.admin_migrations = cls.os_admin.migrations_client

    # Instances

    def boot(self, **kwargs):
        """Boot an instance.

        :returns: (server, GuestMemory); the second is None if tempest.conf
            does not allow to log in to guests
        """
        if not CONF.validation.run_validation:
            server = self.create_server(**kwargs)
            return server, None
        keypair = self.create_keypair()
        server = self.create_server(keypair=keypair, wait_until='SSHABLE',
                                    **kwargs)
        client = self.get_remote_client(
            self.get_server_ip(server), private_key=keypair['private_key'],
            server=server)
        return server, memory.fill(client.exec_command, CONF.dedup_migrate)

    def boot_from_volume(self, **kwargs):
        """Boot an instance from a volume; return the same as boot()."""
        volume = self.create_volume_from_image(
            size=CONF.volume.volume_size)
        return self.boot(
            image_id='', **self._get_bdm(volume['id'], 'volume'), **kwargs)

    def make_flavor(self, **extra_specs):
        """Return the ID of a flavor like the usual one."""
        usual = self.admin_flavors.show_flavor(
            CONF.compute.flavor_ref)['flavor']
        made = self.admin_flavors.create_flavor(
            name=data_utils.rand_name(
                'dedup-migrate', prefix=CONF.resource_name_prefix),
            ram=usual['ram'], vcpus=usual['vcpus'],
            disk=usual['disk'])['flavor']['id']
        self.addCleanup(test_utils.call_and_ignore_notfound_exc,
                        self.admin_flavors.delete_flavor, made)
        if extra_specs:
            self.admin_flavors.set_flavor_extra_spec(made, **extra_specs)
        return made

    def image_with(self, strategy):
        """Return the ID of a copy of the usual image with a strategy."""
        client = self.os_admin.image_client_v2
        usual = client.show_image(CONF.compute.image_ref)
        made = client.create_image(
            name=data_utils.rand_name(
                'dedup-migrate', prefix=CONF.resource_name_prefix),
            disk_format=usual['disk_format'],
            container_format=usual['container_format'],
            visibility='public', **{
                STRATEGY: strategy,
                **{name: value for name, value in usual.items()
                   if name.startswith(('hw_', 'img_'))}})
        self.addCleanup(client.delete_image, made['id'])
        client.store_image_file(
            made['id'], io.BytesIO(
                client.show_image_file(CONF.compute.image_ref).data))
        return made['id']

    # Hosts

    def other_host(self, server):
        """Return the name of a host to which an instance can migrate."""
        source = self.get_host_for_server(server['id'])
        avoid = CONF.compute.target_hosts_to_avoid
        for service in self.admin_services.list_services(
                binary='nova-compute')['services']:
            host = service['host']
            if (service['state'] == 'up' and service['status'] == 'enabled'
                    and host != source and avoid not in host
                    and host != CONF.dedup_migrate.host_without_agent):
                return host
        self.fail('no compute host but %s is up' % source)

    # Migrations

    def start_migration(self, server, host):
        self.admin_servers.live_migrate_server(
            server['id'], host=host, block_migration='auto')

    def migrate(self, server, host=None, status='ACTIVE'):
        """Migrate an instance, and wait until it is on the other host.

        :returns: the migration, as Nova lists it
        """
        host = host or self.other_host(server)
        self.start_migration(server, host)
        waiters.wait_for_server_status(self.servers_client, server['id'],
                                       status)
        found = self.ended_migration(server)
        self.assertEqual(host, self.get_host_for_server(server['id']),
                         'the migration is %s' % found)
        self.assertEqual('completed', found['status'], found)
        return found

    def last_migration(self, server):
        """Return the newest live migration of an instance."""
        found = [migration for migration in
                 self.admin_migrations.list_migrations()['migrations']
                 if migration['instance_uuid'] == server['id']]
        self.assertNotEqual([], found, 'Nova lists no migration')
        return max(found, key=lambda migration: migration['id'])

    def ended_migration(self, server):
        """Wait until the newest live migration has ended; return it.

        Nova gives the instance its new state before that.
        """
        def ended():
            return self.last_migration(server)['status'] not in RUNNING
        if not test_utils.call_until_true(
                ended, CONF.compute.build_timeout,
                CONF.compute.build_interval):
            self.fail('the migration has not ended: %s'
                      % self.last_migration(server))
        return self.last_migration(server)

    def verify(self, guest):
        """Compare a guest's memory and disk with what they were.

        :param guest: GuestMemory or None
        """
        if self._can_verify(guest):
            guest.verify()

    def verify_memory(self, guest):
        """Compare its memory, and leave its page cache as it is."""
        if self._can_verify(guest):
            guest.verify_memory()

    @staticmethod
    def _can_verify(guest):
        if guest is None:
            LOG.info('The memory of the guest is not compared: '
                     '[validation] run_validation is off')
        return guest is not None
