# SPDX-License-Identifier: Apache-2.0
"""Swaps that were interrupted, at each step."""

import dataclasses
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
SWAP = operations.Swap(fakes.UUID, 'vdb', OLD, NEW, '/mnt/new',
                       phase=operations.MIRRORING)
XML = ('<domain><devices><disk><target dev="vda"/><source file="/x"/></disk>'
       '<disk><target dev="vdb"/><source %s/></disk></devices></domain>')
#: Phases in which the guest has the old volume for certain.
EARLY = operations.BEGUN, operations.FILLING, operations.MIRRORING


class Away(Exception):
    """Cinder does not answer."""


class Cinder:
    """The volumes and attachments that Cinder has, and what it refuses.

    :ivar fail: (number of a call, whether it has an effect) that fails
    """

    def __init__(self, api):
        self.migrating = {OLD: 'migrating', NEW: 'target:' + OLD}
        self.attachments = {OLD_ATTACHMENT: OLD, NEW_ATTACHMENT: NEW}
        self.calls = 0
        self.fail = None
        for name in ('get', 'roll_detaching', 'attachment_delete',
                     'attachment_complete', 'attachment_get',
                     'migrate_volume_completion'):
            getattr(api, name).side_effect = self.counted(
                getattr(self, name))

    def counted(self, call):
        def counted(*args, **kwargs):
            number, self.calls = self.calls, self.calls + 1
            if self.fail == (number, False):
                raise Away
            result = call(*args, **kwargs)
            if self.fail == (number, True):
                raise Away
            return result
        return counted

    def listed(self, search_opts):
        assert search_opts['instance_id'] == fakes.UUID
        # They belong to a user's project, and we are of Nova's.
        assert search_opts['all_tenants'] is True
        return [types.SimpleNamespace(id=name)
                for name, volume in self.attachments.items()
                if volume == search_opts['volume_id']]

    def get(self, context, volume):
        if volume not in self.migrating:
            raise exception.VolumeNotFound(volume_id=volume)
        return {'migration_status': self.migrating[volume]}

    def roll_detaching(self, context, volume):
        assert volume == OLD

    def attachment_delete(self, context, attachment):
        # Nova passes over one that is not there.
        self.attachments.pop(attachment, None)

    def attachment_complete(self, context, attachment):
        assert attachment in self.attachments

    def attachment_get(self, context, attachment):
        assert attachment in self.attachments
        return {'connection_info': {'driver_volume_type': 'nfs',
                                    'data': {'name': 'new'}}}

    def migrate_volume_completion(self, context, old, new, error):
        assert self.migrating.get(new) == 'target:' + old
        assert self.migrating[old] == 'migrating'
        del self.migrating[new]
        if error:
            assert new not in self.attachments.values(), 'it is in use'
            self.migrating[old] = 'error'
        else:
            assert old not in self.attachments.values()
            self.migrating[old] = 'success'
            self.attachments = {name: old for name in self.attachments}
        return {'save_volume_id': old}


class RecoveryCase(base.TestCase):

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
        self.job.get_job_info.return_value = None
        self.guest.get_block_device.return_value = self.job
        self.guest.has_persistent_configuration.return_value = False
        self.driver._host.get_guest.return_value = self.guest
        self.runs_from('/mnt/old')
        client = self.patched(cinder, 'cinderclient')
        client.return_value.attachments.list.side_effect = (
            lambda search_opts: self.cinder.listed(search_opts))
        self.saved = self.patched(objects.BlockDeviceMapping, 'save')
        self.found = self.patched(
            objects.BlockDeviceMapping, 'get_by_volume_and_instance',
            side_effect=self.get_bdm)
        self.reset()

    def reset(self):
        """As nova-compute leaves it that was killed in the mirror."""
        self.cinder = Cinder(self.api)
        self.api.reset_mock()
        self.bdm = objects.BlockDeviceMapping(
            instance=objects.Instance(uuid=fakes.UUID, host='here'),
            attachment_id=OLD_ATTACHMENT, volume_id=OLD,
            connection_info='{"data": {"name": "old"}}')

    def get_bdm(self, context, volume, instance, expected_attrs):
        if volume != self.bdm.volume_id:
            raise exception.VolumeBDMNotFound(volume_id=volume)
        return self.bdm

    def patched(self, owner, name, **kwargs):
        patch = mock.patch.object(owner, name, autospec=True, **kwargs)
        self.addCleanup(patch.stop)
        return patch.start()

    def runs_from(self, path, kind='file'):
        self.guest.get_xml_desc.return_value = XML % (
            '%s="%s"' % (kind, path))

    def ends(self):
        self.driver._host.get_guest.side_effect = (
            exception.InstanceNotFound(instance_id=fakes.UUID))

    def settle(self, swap=SWAP, **changes):
        swap_recovery.settle(self.driver,
                             dataclasses.replace(swap, **changes))

    def assert_back(self):
        self.assertEqual({OLD_ATTACHMENT: OLD}, self.cinder.attachments)
        self.assertEqual({OLD: 'error'}, self.cinder.migrating)
        self.assertEqual((OLD, OLD_ATTACHMENT), (self.bdm.volume_id,
                                                 self.bdm.attachment_id))

    def assert_forward(self):
        self.assertEqual({NEW_ATTACHMENT: OLD}, self.cinder.attachments)
        self.assertEqual({OLD: 'success'}, self.cinder.migrating)
        self.assert_saved(OLD)

    def assert_saved(self, volume):
        self.assertEqual((volume, NEW_ATTACHMENT), (self.bdm.volume_id,
                                                    self.bdm.attachment_id))
        info = jsonutils.loads(self.bdm.connection_info)
        self.assertEqual((volume, volume, 'new'), (
            info['serial'], info['data']['volume_id'],
            info['data']['name']))

    def assert_untouched(self):
        for name in ('roll_detaching', 'attachment_delete',
                     'attachment_complete', 'migrate_volume_completion'):
            getattr(self.api, name).assert_not_called()
        self.saved.assert_not_called()


class SwapRecoveryTest(RecoveryCase):

    def test_the_copy_is_aborted_and_the_guest_defined(self):
        for phase in EARLY:
            self.reset()
            self.job.reset_mock()
            self.settle(phase=phase, path='' if phase == operations.BEGUN
                        else SWAP.path)
            self.job.abort_job.assert_called_once_with()
            self.driver._host.write_instance_config.assert_called_with(
                self.guest.get_xml_desc.return_value)
            self.assertEqual(
                'new', self.driver._disconnect_volume.call_args[0][1]
                ['data']['name'])
            self.api.roll_detaching.assert_called_once_with(mock.ANY, OLD)
            self.assert_back()

    def test_a_copy_that_has_ended_already(self):
        self.job.abort_job.side_effect = fakes.libvirt_error(
            libvirt.VIR_ERR_INVALID_ARG)
        self.guest.has_persistent_configuration.return_value = True
        self.settle()
        self.driver._host.write_instance_config.assert_not_called()
        self.assert_back()

    def test_a_copy_that_does_not_end_yet(self):
        """libvirt has been told to pivot, and may still do so."""
        self.job.get_job_info.return_value = 'job'
        self.job.abort_job.side_effect = fakes.libvirt_error(
            libvirt.VIR_ERR_BLOCK_COPY_ACTIVE)
        self.assertRaises(errors.NotSettled, self.settle,
                          phase=operations.PIVOTING)
        self.assert_untouched()
        self.job.get_job_info.return_value = None
        self.runs_from('/mnt/new')
        self.settle(phase=operations.PIVOTING)
        self.assert_forward()

    def test_a_guest_that_is_shut_off(self):
        """There is no copy, and its definition has a volume."""
        self.guest.is_active.return_value = False
        self.settle(phase=operations.PIVOTING)
        self.job.abort_job.assert_not_called()
        self.assert_back()

    def test_a_guest_that_has_ended(self):
        self.ends()
        for phase in EARLY:
            self.reset()
            self.settle(phase=phase)
            self.assert_back()
        self.reset()
        self.settle(phase=operations.PIVOTED)
        self.assert_forward()

    def test_a_guest_that_ended_at_the_pivot(self):
        """Which volume has what it wrote last is not known."""
        self.ends()
        for phase in operations.PIVOTING, operations.COPYING:
            self.assertRaises(errors.LeftToOperator, self.settle,
                              phase=phase)
        self.assert_untouched()

    def test_a_guest_that_has_its_new_volume(self):
        for kind in ('file', 'dev'):
            for phase in (operations.PIVOTING, operations.PIVOTED,
                          operations.COPYING):
                self.runs_from('/mnt/new', kind)
                self.reset()
                self.settle(phase=phase)
                self.job.abort_job.assert_not_called()
                self.api.attachment_complete.assert_called_once_with(
                    mock.ANY, NEW_ATTACHMENT)
                self.api.roll_detaching.assert_not_called()
                self.assertEqual(
                    'old', self.driver._disconnect_volume.call_args[0][1]
                    ['data']['name'])
                self.assert_forward()

    def test_the_database_has_the_new_volume_before_cinder_completes(self):
        """A guest that starts anew meanwhile has to get it."""
        self.runs_from('/mnt/new')
        self.api.migrate_volume_completion.side_effect = Away
        self.assertRaises(Away, self.settle)
        self.assert_saved(OLD)

    def test_a_swap_that_cinder_did_not_begin(self):
        """Whatever is left from earlier migrations."""
        for status in None, 'success', 'error':
            self.reset()
            self.cinder.migrating = {OLD: status, NEW: status}
            self.runs_from('/mnt/new')
            self.settle()
            self.assert_saved(NEW)
            self.assertEqual({NEW_ATTACHMENT: NEW}, self.cinder.attachments)
            self.api.migrate_volume_completion.assert_not_called()
            self.settle()

    def test_back_of_a_swap_that_cinder_did_not_begin(self):
        self.cinder.migrating = {OLD: None, NEW: None}
        self.settle()
        self.assertEqual({OLD_ATTACHMENT: OLD}, self.cinder.attachments)
        self.api.migrate_volume_completion.assert_not_called()

    def test_each_call_that_fails(self):
        """Before and after its effect; then the same once more."""
        for path, check in (('/mnt/old', self.assert_back),
                            ('/mnt/new', self.assert_forward)):
            self.runs_from(path)
            self.reset()
            self.settle()
            number = self.cinder.calls
            self.assertGreater(number, 4)
            for fail in ((call, effect) for call in range(number)
                         for effect in (False, True)):
                with self.subTest(path=path, fail=fail):
                    self.reset()
                    self.cinder.fail = fail
                    self.assertRaises(Away, self.settle)
                    self.cinder.fail = None
                    self.driver._disconnect_volume.reset_mock()
                    self.settle()
                    check()
                    for call in self.driver._disconnect_volume.mock_calls:
                        # never the one that the guest has
                        self.assertEqual(
                            'new' if path == '/mnt/old' else 'old',
                            call.args[1]['data']['name'])

    def test_a_database_that_fails(self):
        self.runs_from('/mnt/new')
        for migrates, volume in ((True, OLD), (False, NEW)):
            self.reset()
            if not migrates:
                self.cinder.migrating = {OLD: None, NEW: None}
            self.saved.side_effect = Away
            bdm = self.bdm.obj_clone()
            self.assertRaises(Away, self.settle)
            # What was not saved is read as it was.
            self.bdm, self.saved.side_effect = bdm, None
            self.settle()
            self.assert_saved(volume)
            self.assertEqual({NEW_ATTACHMENT: volume},
                             self.cinder.attachments)

    def test_cinder_is_at_work(self):
        """Or an administrator has reset it: it is not interfered with."""
        self.runs_from('/mnt/new')
        for old, new in (('completing', 'target:' + OLD), ('error', 'target:'
                         + OLD), (None, 'target:' + OLD),
                         ('success', 'deleting')):
            self.cinder.migrating = {OLD: old, NEW: new}
            self.assertRaises(errors.NotSettled, self.settle)
            self.assert_untouched()

    def test_an_administrator_has_reset_the_migration(self):
        self.cinder.migrating = {OLD: None, NEW: 'target:' + OLD}
        self.settle()
        self.assertEqual({OLD_ATTACHMENT: OLD}, self.cinder.attachments)
        self.api.migrate_volume_completion.assert_not_called()

    def test_contradictions(self):
        """The guest has one volume, and Nova or Cinder the other."""
        self.cinder.migrating[OLD] = 'completing'
        self.assertRaises(errors.NotSettled, self.settle)
        self.cinder.migrating[OLD] = 'migrating'
        self.bdm.attachment_id = NEW_ATTACHMENT
        self.assertRaises(errors.NotSettled, self.settle)
        del self.cinder.attachments[NEW_ATTACHMENT]
        self.runs_from('/mnt/new')
        self.assertRaises(errors.NotSettled, self.settle)
        self.assert_untouched()

    def test_only_the_database_is_left(self):
        self.runs_from('/mnt/new')
        self.cinder.migrating = {OLD: 'success'}
        self.cinder.attachments = {NEW_ATTACHMENT: OLD}
        self.settle()
        self.assertEqual(NEW_ATTACHMENT, self.bdm.attachment_id)
        self.saved.assert_called_once_with(self.bdm)
        self.saved.reset_mock()
        self.settle()
        self.assert_untouched()

    def test_nothing_is_left(self):
        self.cinder.attachments = {OLD_ATTACHMENT: OLD}
        self.cinder.migrating = {OLD: 'error'}
        self.settle()
        self.bdm.volume_id = 'another'
        self.settle()
        self.assert_untouched()

    def test_an_instance_that_has_moved(self):
        self.bdm.instance.host = 'there'
        self.settle()
        self.assert_untouched()
        self.driver._host.get_guest.assert_not_called()

    def test_network_volumes(self):
        """The record shows which one the guest has, but for a moment."""
        for phase in EARLY:
            self.reset()
            self.settle(path='', phase=phase)
            self.assert_back()
        self.reset()
        self.job.reset_mock()
        self.settle(path='', phase=operations.PIVOTED)
        self.job.abort_job.assert_not_called()
        self.assert_forward()
        self.reset()
        self.saved.reset_mock()
        self.assertRaises(errors.LeftToOperator, self.settle, path='',
                          phase=operations.PIVOTING)
        self.assert_untouched()
