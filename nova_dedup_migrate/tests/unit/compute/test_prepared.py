# SPDX-License-Identifier: Apache-2.0
"""What has to be undone comes from the destination and from Cinder."""

import functools
from unittest import mock

from nova import objects
from nova.compute import manager as compute_manager
from nova.compute import rpcapi
from nova.volume import cinder
import oslo_messaging

from nova_dedup_migrate.compute import prepared
from nova_dedup_migrate.tests import base

UUID = '22222222-0000-4000-8000-000000000002'
MIGRATION = '11111111-0000-4000-8000-000000000001'


class WantedTest(base.TestCase):

    def setUp(self):
        super().setUp()
        objects.register_all()
        self.instance = objects.Instance(uuid=UUID, host='from')
        self.migrations = [objects.Migration(dest_compute='here')]
        for owner, name, answer in (
                (objects.MigrationList, 'get_by_filters', 'migrations'),
                (objects.Instance, 'get_by_uuid', 'instance')):
            patcher = mock.patch.object(
                owner, name, autospec=True,
                side_effect=functools.partial(self.answer, answer))
            self.addCleanup(patcher.stop)
            setattr(self, name, patcher.start())

    def answer(self, name, *args):
        return getattr(self, name)

    def wanted(self):
        return prepared.is_wanted('context', self.instance, 'here')

    def test_wanted(self):
        self.assertTrue(self.wanted())
        self.get_by_filters.assert_called_once_with(
            'context', {'instance_uuid': UUID,
                        'status': ['accepted', 'queued', 'preparing']})

    def test_rolled_back(self):
        self.migrations = []
        self.assertFalse(self.wanted())
        self.get_by_uuid.assert_called_once_with('context', UUID)

    def test_it_migrates_elsewhere(self):
        self.migrations[0].dest_compute = 'there'
        self.assertFalse(self.wanted())

    def test_it_is_here(self):
        self.migrations = []
        self.instance.host = 'here'
        self.assertTrue(self.wanted())

    def test_nobody_knows(self):
        self.get_by_filters.side_effect = (
            oslo_messaging.MessagingTimeout('late'))
        self.assertTrue(self.wanted())


class PreparedTest(base.TestCase):

    def setUp(self):
        super().setUp()
        objects.register_all()
        self.instance = objects.Instance(
            uuid=UUID, host='here', numa_topology=None,
            pci_requests=objects.InstancePCIRequests(requests=[]))
        self.migration = objects.Migration(
            uuid=MIGRATION, instance_uuid=UUID, dest_compute='there')
        self.manager = mock.create_autospec(
            compute_manager.ComputeManager, instance=True)
        self.manager.compute_rpcapi = mock.create_autospec(
            rpcapi.ComputeAPI, instance=True)
        self.check = (
            self.manager.compute_rpcapi.check_can_live_migrate_destination)
        self.check.return_value = objects.LibvirtLiveMigrateData(
            block_migration=True, is_shared_instance_path=False)
        self.manager.volume_api = mock.create_autospec(cinder.API,
                                                       instance=True)
        patcher = mock.patch.object(cinder, 'cinderclient', autospec=True)
        self.client = patcher.start()
        self.addCleanup(patcher.stop)
        self.client.return_value.attachments.list.side_effect = (
            lambda **kwargs: [
                mock.Mock(spec=['id', 'volume_id'], id=name,
                          volume_id=volume)
                for name, (volume, _time) in self.attachments.items()])
        self.manager.volume_api.attachment_get.side_effect = (
            lambda context, name: {'connection_info': {
                'attached_at': self.attachments[name][1]}})
        self.attachments = {}
        self.bdms = []
        patcher = mock.patch.object(
            objects.BlockDeviceMappingList, 'get_by_instance_uuid',
            autospec=True, side_effect=lambda *args: self.bdms)
        patcher.start()
        self.addCleanup(patcher.stop)

    def volume(self, name, attachment):
        bdm = mock.create_autospec(objects.BlockDeviceMapping, instance=True)
        bdm.configure_mock(is_volume=True, volume_id=name,
                           attachment_id=attachment)
        self.bdms.append(bdm)

    def entry(self):
        return prepared.entry(self.manager, 'context', self.instance,
                              self.migration)

    def old(self):
        return self.entry().migrate_data.old_vol_attachment_ids

    def not_known(self):
        self.assertRaises(prepared.NotKnown, self.entry)

    def test_what_the_destination_says(self):
        entry = self.entry()
        self.check.assert_called_once_with(
            'context', self.instance, 'there', None, None, self.migration,
            None)
        self.assertEqual(
            (MIGRATION, UUID, 'there', True, self.check.return_value),
            (entry.migration_uuid, entry.instance_uuid, entry.destination,
             entry.block_migration, entry.migrate_data))
        self.assertEqual({}, entry.migrate_data.old_vol_attachment_ids)
        self.client.assert_not_called()

    def test_no_destination(self):
        self.migration.dest_compute = None
        self.not_known()
        self.check.assert_not_called()

    def test_claims(self):
        self.instance.numa_topology = objects.InstanceNUMATopology()
        self.not_known()
        self.instance.numa_topology = None
        self.instance.pci_requests.requests = [objects.InstancePCIRequest()]
        self.not_known()
        self.check.assert_not_called()

    def test_a_volume_that_has_a_second_attachment(self):
        self.volume('v', 'new')
        self.volume('w', 'only')
        self.attachments = {'new': ('v', '2026-01-01T00:00:09'),
                            'only': ('w', '2026-01-01T00:00:01'),
                            'old': ('v', '2026-01-01T00:00:01')}
        self.assertEqual({'v': 'old'}, self.old())
        # the instance may be of any project
        self.client.return_value.attachments.list.assert_called_once_with(
            search_opts={'instance_id': UUID, 'all_tenants': 1})

    def test_the_second_one_is_newer(self):
        """The destination ended before it told Nova."""
        self.volume('v', 'old')
        self.attachments = {'new': ('v', '2026-01-01T00:00:09'),
                            'old': ('v', '2026-01-01T00:00:01')}
        self.not_known()

    def test_three(self):
        self.volume('v', 'c')
        self.attachments = dict.fromkeys('abc', ('v', ''))
        self.not_known()
