# SPDX-License-Identifier: Apache-2.0
"""Swaps that were interrupted, at each step."""

import types
from unittest import mock

import libvirt
from nova import exception
from nova import objects
from nova.virt.libvirt import driver as libvirt_driver
from nova.virt.libvirt import guest as libvirt_guest
from nova.virt.libvirt import host as libvirt_host
from nova.volume import cinder
from oslo_serialization import jsonutils

from nova_dedup_migrate.compute import swap_recovery
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import fakes

OLD = '33333333-0000-4000-8000-000000000003'
NEW = '44444444-0000-4000-8000-000000000004'
OLD_ATTACHMENT = '66666666-0000-4000-8000-000000000006'
NEW_ATTACHMENT = '77777777-0000-4000-8000-000000000007'
SWAP = operations.Swap(fakes.UUID, 'vdb', OLD, NEW, '/mnt/new')
XML = ('<domain><devices><disk><target dev="vda"/><source file="/x"/></disk>'
       '<disk><target dev="vdb"/><source %s/></disk></devices></domain>')


class SwapRecoveryTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.driver = mock.create_autospec(
            libvirt_driver.LibvirtDriver, instance=True)
        self.driver._host = mock.create_autospec(libvirt_host.Host,
                                                 instance=True)
        self.api = mock.create_autospec(cinder.API, instance=True)
        self.driver.virtapi = types.SimpleNamespace(
            _compute=types.SimpleNamespace(host='here', volume_api=self.api))
        self.guest = mock.create_autospec(libvirt_guest.Guest, instance=True)
        self.job = mock.create_autospec(libvirt_guest.BlockDevice,
                                        instance=True)
        self.guest.get_block_device.return_value = self.job
        self.guest.has_persistent_configuration.return_value = False
        self.driver._host.get_guest.return_value = self.guest
        self.runs_from('/mnt/old')
        self.attachments = {NEW: NEW_ATTACHMENT}
        client = self.patched(cinder, 'cinderclient')
        client.return_value.attachments.list.side_effect = self._attachments
        self.api.attachment_get.return_value = {
            'connection_info': {'driver_volume_type': 'nfs',
                                'data': {'name': 'new'}}}
        self.api.get.return_value = {'migration_status': 'migrating'}
        self.api.migrate_volume_completion.return_value = {
            'save_volume_id': OLD}
        self.bdm = objects.BlockDeviceMapping(
            instance=objects.Instance(uuid=fakes.UUID, host='here'),
            attachment_id=OLD_ATTACHMENT, volume_id=OLD,
            connection_info='{"data": {"name": "old"}}')
        self.saved = self.patched(objects.BlockDeviceMapping, 'save')
        self.found = self.patched(objects.BlockDeviceMapping,
                                  'get_by_volume_and_instance',
                                  return_value=self.bdm)

    def patched(self, owner, name, **kwargs):
        patch = mock.patch.object(owner, name, autospec=True, **kwargs)
        self.addCleanup(patch.stop)
        return patch.start()

    def _attachments(self, search_opts):
        self.assertEqual(fakes.UUID, search_opts['instance_id'])
        # They belong to a user's project, and we are of Nova's.
        self.assertIs(True, search_opts['all_tenants'])
        name = self.attachments.get(search_opts['volume_id'])
        return [types.SimpleNamespace(id=name)] if name else []

    def runs_from(self, path, kind='file'):
        self.guest.get_xml_desc.return_value = XML % (
            '%s="%s"' % (kind, path))

    def settle(self, swap=SWAP):
        swap_recovery.settle(self.driver, swap)

    def assert_back(self):
        self.api.roll_detaching.assert_called_once_with(mock.ANY, OLD)
        self.api.attachment_delete.assert_called_once_with(
            mock.ANY, NEW_ATTACHMENT)
        self.api.migrate_volume_completion.assert_called_once_with(
            mock.ANY, OLD, NEW, error=True)
        self.saved.assert_not_called()

    def assert_untouched(self):
        for name in ('roll_detaching', 'attachment_delete',
                     'attachment_complete', 'migrate_volume_completion'):
            getattr(self.api, name).assert_not_called()
        self.saved.assert_not_called()

    def test_the_copy_is_aborted_and_the_guest_defined(self):
        self.settle()
        self.job.abort_job.assert_called_once_with()
        self.driver._host.write_instance_config.assert_called_once_with(
            self.guest.get_xml_desc.return_value)
        self.assertEqual(
            'new', self.driver._disconnect_volume.call_args[0][1]
            ['data']['name'])
        self.assert_back()

    def test_a_copy_that_has_ended_already(self):
        self.job.abort_job.side_effect = fakes.libvirt_error(
            libvirt.VIR_ERR_INVALID_ARG)
        self.guest.has_persistent_configuration.return_value = True
        self.settle()
        self.driver._host.write_instance_config.assert_not_called()
        self.assert_back()

    def test_a_guest_that_has_ended(self):
        self.driver._host.get_guest.side_effect = (
            exception.InstanceNotFound(instance_id=fakes.UUID))
        self.settle()
        self.assert_back()

    def test_a_guest_that_has_its_new_volume(self):
        for kind in ('file', 'dev'):
            self.runs_from('/mnt/new', kind)
            self.api.reset_mock()
            self.bdm.attachment_id = OLD_ATTACHMENT
            self.settle()
            self.job.abort_job.assert_not_called()
            self.api.attachment_complete.assert_called_once_with(
                mock.ANY, NEW_ATTACHMENT)
            self.api.attachment_delete.assert_called_once_with(
                mock.ANY, OLD_ATTACHMENT)
            self.api.migrate_volume_completion.assert_called_once_with(
                mock.ANY, OLD, NEW, error=False)
            self.assertEqual(NEW_ATTACHMENT, self.bdm.attachment_id)
            self.assertEqual(OLD, self.bdm.volume_id)
            info = jsonutils.loads(self.bdm.connection_info)
            self.assertEqual((OLD, OLD, 'new'), (
                info['serial'], info['data']['volume_id'],
                info['data']['name']))
            self.api.roll_detaching.assert_not_called()

    def test_a_swap_that_cinder_did_not_begin(self):
        self.api.get.return_value = {}
        self.runs_from('/mnt/new')
        self.settle()
        self.assertEqual(NEW, self.bdm.volume_id)
        self.api.migrate_volume_completion.assert_not_called()

    def test_only_the_database_is_left(self):
        self.runs_from('/mnt/new')
        self.attachments = {OLD: NEW_ATTACHMENT}
        self.settle()
        self.assertEqual(NEW_ATTACHMENT, self.bdm.attachment_id)
        self.saved.assert_called_once_with(self.bdm)
        self.saved.reset_mock()
        self.settle()
        self.assert_untouched()

    def test_nothing_is_left(self):
        self.attachments = {OLD: OLD_ATTACHMENT}
        self.settle()
        self.assert_untouched()
        self.found.side_effect = exception.VolumeBDMNotFound(volume_id=OLD)
        self.settle()
        self.assert_untouched()

    def test_an_instance_that_has_moved(self):
        self.bdm.instance.host = 'there'
        self.settle()
        self.assert_untouched()
        self.driver._host.get_guest.assert_not_called()

    def test_network_volumes_are_left_to_the_operator(self):
        self.assertRaises(errors.NotFillable, self.settle,
                          operations.Swap(fakes.UUID, 'vdb', OLD, NEW, ''))
        self.assert_untouched()
