# SPDX-License-Identifier: Apache-2.0
from guests import errors
from guests.synthetic import workload
from nova_dedup_migrate.tests import base


class WorkloadTest(base.TestCase):

    def test_kernel_command_line(self):
        words = workload.Workload(mode='mixed', cache=200, anon=50,
                                  rate=11000, disks=2).append.split()
        self.assertIn('workload.mode=mixed', words)
        self.assertIn('workload.cache=200', words)
        self.assertIn('workload.disks=2', words)
        self.assertFalse([w for w in words if w.startswith('workload.wss')])

    def test_start_command(self):
        self.assertEqual(
            'start anon-writer rate=5 readrate=0 wss=30',
            workload.Workload(mode='anon-writer', rate=5,
                              wss=30).start_command)

    def test_bad_values(self):
        self.assertRaises(ValueError, workload.Workload, mode='sleep')
        self.assertRaises(ValueError, workload.Workload, anon=-1)

    def test_share_is_what_is_asked_for(self):
        for share in (10, 35, 60, 70, 85):
            cache, anon = workload.sizes_for_share(1024, share)
            used = cache + anon + workload.kernel_mib(1024)
            self.assertAlmostEqual(share / 100, cache / used, delta=0.01)
            self.assertLess(used, 1024)

    def test_too_little_memory(self):
        error = self.assertRaises(errors.GuestError,
                                  workload.sizes_for_share, 512, 85)
        self.assertIn('512 MiB of memory are too few', str(error))
