# SPDX-License-Identifier: Apache-2.0
"""A volume in use that has a backup and moves to another backend.

The driver fills the new volume from the backup, as far as the backup has
what the volume has.  What it has filled is in the records of its host
(nova-dedup-migrate swap list), which no API shows.
"""

from tempest import config
from tempest.common import utils
from tempest.common import waiters
from tempest.lib import decorators

from nova_dedup_migrate_tempest_plugin import volume as volumes
from nova_dedup_migrate_tempest_plugin.scenario import base

CONF = config.CONF


class VolumeTest(base.DedupMigrateScenario):

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.service_available.cinder:
            raise cls.skipException('Cinder is not available')
        if not CONF.volume_feature_enabled.backup:
            raise cls.skipException('[volume-feature-enabled] backup is off: '
                                    'there is no cinder-backup')
        if not CONF.volume_feature_enabled.multi_backend or (
                len(set(CONF.volume.backend_names)) < 2):
            raise cls.skipException('Cinder has one backend: set '
                                    '[volume-feature-enabled] multi_backend '
                                    'and [volume] backend_names')

    @decorators.attr(type='slow')
    @decorators.idempotent_id('c8e2a4d6-13f5-4b79-8d0a-5e6f7a8b9c01')
    @utils.services('compute', 'network', 'volume')
    def test_retype_with_a_backup(self):
        """The volume has the guest's data, older and newer than the backup."""
        here, there = (
            self.create_volume_type(backend_name=name)['name']
            for name in sorted(set(CONF.volume.backend_names))[:2])
        server, guest = self.boot()
        volume = self.create_volume(volume_type=here)['id']
        self.nova_volume_attach(server, {'id': volume})
        size, data = CONF.dedup_migrate.file_size, None
        if guest is not None:
            # A third is never written to.
            data = volumes.GuestVolume(
                guest.run, '/dev/' + CONF.compute.volume_device_name,
                3 * size)
            data.write(0, size)
        self.create_backup(volume, force=True)
        waiters.wait_for_volume_resource_status(self.volumes_client, volume,
                                                'in-use')
        before = data
        if data is not None:
            # half of what the backup has, and as much that it does not
            data.write(size // 2, size)
            before = data.checksum()
        source = self._backend(volume)
        self.os_admin.volumes_client_latest.retype_volume(
            volume, new_type=there, migration_policy='on-demand')
        waiters.wait_for_volume_retype(self.volumes_client, volume, there)
        waiters.wait_for_volume_resource_status(self.volumes_client, volume,
                                                'in-use')
        self.assertNotEqual(source, self._backend(volume))
        self.assertEqual([server['id']], [
            attached['server_id'] for attached in self.volumes_client
            .show_volume(volume)['volume']['attachments']])
        if data is not None:
            self.assertEqual(before, data.checksum(),
                             'the data of the volume has changed')
            data.write(0, 1)
        self.verify(guest)

    def _backend(self, volume):
        """Return the host of a volume, as host@backend#pool."""
        return self.os_admin.volumes_client_latest.show_volume(
            volume)['volume']['os-vol-host-attr:host']
