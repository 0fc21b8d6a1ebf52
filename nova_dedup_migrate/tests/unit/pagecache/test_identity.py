# SPDX-License-Identifier: Apache-2.0
import dataclasses

from nova_dedup_migrate.pagecache import devices
from nova_dedup_migrate.pagecache import identity
from nova_dedup_migrate.pagecache import listingformat as form
from nova_dedup_migrate.tests import base

VOLUME = '0c3bd1a2-1111-2222-3333-444455556666'
VDA = form.Disk(bus='virtio-blk', pci=((2, 1), (0, 0)), name='vda')
DISK0 = devices.Device('disk0', 'virtio-blk', pci=((2, 1), (0, 0)))
DISK1 = devices.Device('disk1', 'virtio-blk', pci=((2, 2), (0, 0)))
SCSI = ((3, 0),)


class MatchTest(base.TestCase):

    def match(self, disks, known):
        return identity.match(disks, known)

    def one(self, disk, *known):
        """Return the id disk gets, or why it gets none."""
        ids, reasons = identity.match([disk], known)
        return ids[0] if ids else reasons[0]

    def test_path(self):
        self.assertEqual('disk0', self.one(VDA, DISK0, DISK1))
        self.assertEqual('disk1', self.one(
            dataclasses.replace(VDA, pci=DISK1.pci), DISK0, DISK1))

    def test_another_path(self):
        for changed in ({'pci': ((2, 3), (0, 0))}, {'pci': ((2, 1),)},
                        {'pci_domain': 1}, {'pci_root': 80},
                        {'bus': 'nvme'}):
            self.assertIn('matches no disk', self.one(
                dataclasses.replace(VDA, **changed), DISK0, DISK1))

    def test_serial_alone(self):
        volume = dataclasses.replace(DISK0, pci=None, serial=VOLUME)
        for serial in (VOLUME, VOLUME[:20]):
            self.assertEqual('disk0', self.one(dataclasses.replace(
                VDA, pci=None, serial=serial), volume, DISK1))
        for serial in (VOLUME[:19], VOLUME + 'x', '', VOLUME[1:21]):
            self.assertIn('matches no disk', self.one(dataclasses.replace(
                VDA, pci=None, serial=serial), volume, DISK1))

    def test_serial_contradicts(self):
        self.assertIn('matches no disk', self.one(
            dataclasses.replace(VDA, serial='other'),
            dataclasses.replace(DISK0, serial='one')))

    def test_nothing_is_known(self):
        self.assertIn('matches no disk', self.one(form.Disk(), DISK0))
        self.assertIn('disk 0 matches no disk',
                      self.one(form.Disk(), devices.Device('disk0')))

    def test_scsi(self):
        sda = form.Disk(bus='scsi', pci=SCSI, scsi=(0, 1), unit=2)
        known = [devices.Device('%d-%d-%d' % (channel, target, unit), 'scsi',
                                SCSI, (channel, target), unit)
                 for channel in range(2) for target in range(3)
                 for unit in range(3)]
        self.assertEqual('0-1-2', self.one(sda, *known))
        self.assertIn('matches 18 disks', self.one(
            dataclasses.replace(sda, scsi=None), *known))
        self.assertIn('matches no disk', self.one(
            dataclasses.replace(sda, unit=3), *known))

    def test_ata_needs_the_serial(self):
        known = [devices.Device(name, 'scsi', SCSI, (0, 0), 0, name)
                 for name in ('QM00001', 'QM00003')]
        sda = form.Disk(bus='scsi', pci=SCSI, scsi=(0, 0))
        self.assertIn('matches 2 disks', self.one(sda, *known))
        self.assertEqual('QM00003', self.one(
            dataclasses.replace(sda, serial='QM00003'), *known))

    def test_nvme(self):
        known = devices.Device('n', 'nvme', SCSI, None, 1)
        self.assertEqual('n', self.one(
            form.Disk(bus='nvme', pci=SCSI, unit=1), known))
        self.assertIn('matches no disk', self.one(
            form.Disk(bus='nvme', pci=SCSI, unit=2), known))

    def test_two_that_are_one(self):
        ids, reasons = identity.match(
            [VDA, dataclasses.replace(VDA, name='vdb'),
             dataclasses.replace(VDA, pci=DISK1.pci)], [DISK0, DISK1])
        self.assertEqual({2: 'disk1'}, ids)
        self.assertEqual([0, 1], sorted(reasons))
        self.assertIn('vdb is not the only disk', reasons[1])

    def test_twice_the_same_serial(self):
        known = [dataclasses.replace(one, pci=None, serial='s')
                 for one in (DISK0, DISK1)]
        self.assertIn('matches 2 disks', self.one(
            form.Disk(bus='virtio-blk', serial='s'), *known))
