# SPDX-License-Identifier: Apache-2.0
import struct

from guests import bootdisk
from guests.synthetic import bootdisk as synthetic
from guests.synthetic.workload import Workload
from nova_dedup_migrate.tests import base


class TestPartitionTable(base.TestCase):

    def test_there_are_two_partitions_one_to_boot_from(self):
        sector = bootdisk.partition_table(b'code', 100 << 20)
        self.assertEqual(512, len(sector))
        self.assertEqual(b'code', sector[:4])
        self.assertEqual(b'\x55\xaa', sector[510:])
        first, second = (
            struct.unpack('<B3xB3xII', sector[at:at + 16])
            for at in (446, 462))
        self.assertEqual((0x80, 0x0e, 2048, 31 * 2048), first)
        self.assertEqual((0, 0x83, 32 * 2048, 100 * 2048), second)
        self.assertEqual(b'\0' * 32, sector[478:510])

    def test_too_much_code_is_refused(self):
        self.assertRaises(ValueError, bootdisk.partition_table,
                          b'x' * 441, 512)


class TestConfig(base.TestCase):

    def test_the_kernel_is_told_the_workload(self):
        text = synthetic.syslinux_config(Workload(cache=7))
        self.assertIn('APPEND console=ttyS0 ', text)
        self.assertIn(' workload.cache=7 ', text)
