# SPDX-License-Identifier: Apache-2.0
"""Names of block devices, from a sysfs made for the test."""

import os
from unittest import mock

from nova_dedup_migrate.identity import blockids
from nova_dedup_migrate.tests import base

DEVICE = os.makedev(8, 16)
NAA = 'naa.6001405a1b2c3d4e5f60718293a4b5c6'


class BlockIdsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.sys = self.temporary_dir()
        patcher = mock.patch.object(blockids, '_SYS', str(self.sys))
        patcher.start()
        self.addCleanup(patcher.stop)

    def put(self, name, text):
        path = self.sys / '8:16' / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def names(self):
        return blockids.identifiers(DEVICE)

    def test_scsi(self):
        self.put('device/wwid', NAA + '\n')
        self.assertEqual([NAA], self.names())

    def test_nvme(self):
        self.put('wwid', 'eui.0123456789abcdef\n')
        self.assertEqual(['eui.0123456789abcdef'], self.names())

    def test_multipath_has_the_name_of_its_paths(self):
        self.put('dm/uuid', 'mpath-3' + NAA[4:] + '\n')
        self.assertEqual([NAA], self.names())

    def test_logical_volume(self):
        self.put('dm/uuid', 'LVM-abc\n')
        self.assertEqual(['dm.LVM-abc'], self.names())

    def test_virtio(self):
        self.put('serial', 'volume-1')
        self.assertEqual(['serial.volume-1'], self.names())

    def test_partition(self):
        self.put('device/wwid', NAA)
        self.put('partition', '1')
        self.assertEqual([], self.names())

    def test_nothing(self):
        self.assertEqual([], self.names())
        self.put('wwid', '\x01\x02')
        self.put('serial', '')
        self.assertEqual([], self.names())

    def test_length(self):
        self.put('serial', 'x' * 10000)
        self.assertLessEqual(len(self.names()[0]), 300)

    def test_unique(self):
        for name in (NAA, 'eui.0123456789abcdef',
                     'uuid.0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'):
            self.assertTrue(blockids.is_unique(name), name)
        for name in ('t10.IET 00010001', 'naa.3001405a1b2c3d4e',
                     'serial.x', 'dm.LVM-abc', 'nvme.1234', NAA + 'x' * 30):
            self.assertFalse(blockids.is_unique(name), name)

    def test_size(self):
        self.put('size', '2048\n')
        self.assertEqual(1 << 20, blockids.size(DEVICE))
        self.put('size', 'x')
        self.assertEqual(0, blockids.size(DEVICE))
