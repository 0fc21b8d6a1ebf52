# SPDX-License-Identifier: Apache-2.0
"""Seeded mirrors of the disks of guests that write all the time."""

from nova_dedup_migrate.tests.functional.disks import case


class GuestsTest(case.SeedCase):

    def check(self, share=0.5, sync='full', **given):
        self.check_mirror(self.booted(**given), share, sync)

    def test_raw_with_an_iothread(self):
        self.check(iothread=True)

    def test_qcow2_of_scsi_with_an_iothread(self):
        self.check(form='qcow2', device='virtio-scsi', iothread=True)

    def test_qcow2_of_nvme_to_raw(self):
        self.check(form='qcow2', device='nvme', target_format='raw')

    def test_top_over_a_base(self):
        self.check(form='qcow2', base=True, sync='top')
