# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.pagecache import devices
from nova_dedup_migrate.tests import base

#: As QEMU 10.0 has them.
TREE = {
    '/machine/peripheral/vd9': {
        'type': 'virtio-blk-pci', 'serial': 'abc', 'addr': 0,
        'parent_bus': '/machine/peripheral/pci.1/pci.1'},
    '/machine/peripheral/pci.1': {
        'type': 'pcie-root-port', 'addr': 17,
        'parent_bus': '/machine/q35/pcie.0'},
    '/machine/q35': {'type': 'q35-pcihost',
                     'parent_bus': '/machine/unattached/sysbus'},
    '/machine/peripheral/s3': {
        'type': 'scsi-hd', 'serial': '', 'channel': 0, 'scsi-id': 3,
        'lun': 5, 'parent_bus':
            '/machine/peripheral/sc/virtio-backend/sc.0'},
    '/machine/peripheral/sc/virtio-backend': {
        'type': 'virtio-scsi-device',
        'parent_bus': '/machine/peripheral/sc/virtio-bus'},
    '/machine/peripheral/sc': {
        'type': 'virtio-scsi-pci', 'addr': 72,
        'parent_bus': '/machine/q35/pcie.0'},
    '/machine/peripheral/ide': {
        'type': 'ide-hd', 'serial': 'QM00011', 'unit': 0,
        'parent_bus': '/machine/unattached/device[13]/ide.5'},
    '/machine/unattached/device[13]': {
        'type': 'ich9-ahci', 'addr': 250,
        'parent_bus': '/machine/q35/pcie.0'},
    '/machine/peripheral/nvme': {
        'type': 'nvme', 'serial': 'n', 'addr': 32,
        'parent_bus': '/machine/q35/pcie.0'},
    '/machine/peripheral/vdp': {
        'type': 'virtio-blk-pci', 'serial': '', 'addr': 0,
        'parent_bus': '/machine/peripheral/pr2/pr2'},
    '/machine/peripheral/pr2': {
        'type': 'pcie-root-port', 'addr': 0,
        'parent_bus': '/machine/unattached/device[23]/pxb'},
    '/machine/unattached/device[23]': {'type': 'pxb-host'},
    '/machine/peripheral/usb': {
        'type': 'usb-storage', 'serial': 'u', 'addr': 8,
        'parent_bus': '/machine/q35/pcie.0'},
}
Device = devices.Device


class FindTest(base.TestCase):

    def find(self, *names, tree=TREE):
        def get(command, path, property):
            self.assertEqual('qom-get', command)
            try:
                return tree[path][property]
            except KeyError:
                raise errors.QmpError(
                    command=command, error_class='GenericError',
                    description='no such property') from None
        guest = mock.create_autospec(hypervisor.Guest, instance=True)
        guest.disks.return_value = {name: name for name in names}
        guest.qmp.side_effect = get
        return devices.find(guest)

    def test_kinds(self):
        self.assertEqual(
            (Device('vd9', 'virtio-blk', ((2, 1), (0, 0)), serial='abc'),
             Device('s3', 'scsi', ((9, 0),), (0, 3), 5),
             Device('ide', 'scsi', ((31, 2),), (0, 0), serial='QM00011'),
             Device('nvme', 'nvme', ((4, 0),), unit=1, serial='n'),
             Device('usb', serial='u')),
            self.find('vd9', 's3', 'ide', 'nvme', 'usb'))

    def test_behind_another_host_bridge(self):
        self.assertEqual((Device('vdp', 'virtio-blk'),), self.find('vdp'))

    def test_unknown(self):
        self.assertEqual((Device('gone'),), self.find('gone'))

    def test_nonsense(self):
        for wrong in ({'addr': -1}, {'addr': '2.0'}, {'addr': True},
                      {'parent_bus': 7}, {'parent_bus': ''},
                      {'parent_bus': 'x/y'},
                      {'parent_bus': '/machine/peripheral/vd9/self'}):
            tree = dict(TREE)
            tree['/machine/peripheral/vd9'] = {
                **TREE['/machine/peripheral/vd9'], **wrong}
            found, = self.find('vd9', tree=tree)
            self.assertIsNone(found.pci, wrong)
