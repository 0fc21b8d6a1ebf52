# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.hypervisor import memory
from nova_dedup_migrate.tests import base

MIB = 1 << 20


class LayoutTest(base.TestCase):
    """Expected: what "info mtree" of QEMU 10.0 shows."""

    def check(self, machine, mib, *expected):
        self.assertEqual(
            tuple(memory.RamRange(start, size) for start, size in expected),
            memory.boot_ranges(machine, mib * MIB))

    def test_pc(self):
        self.check('pc', 3583, (0, 3583 * MIB))
        self.check('pc-i440fx-10.0-machine', 3584, (0, 3072 * MIB),
                   (4096 * MIB, 512 * MIB))

    def test_q35(self):
        self.check('pc-q35-10.0-machine', 2815, (0, 2815 * MIB))
        self.check('q35', 2816, (0, 2048 * MIB), (4096 * MIB, 768 * MIB))
