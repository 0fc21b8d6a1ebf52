# SPDX-License-Identifier: Apache-2.0
"""Seeded mirrors of the disks of guests that write all the time."""

from nova_dedup_migrate.tests.functional.disks import case


class GuestsTest(case.SeedCase):

    def check(self, share=0.5, sync='full', **given):
        """The guest writes during watching, filling and mirroring.

        :param share: of the disk, that is mirrored at most
        """
        one = self.booted(**given)
        with one.guest_writes(self.sectors[:30]):
            watch = one.watch()
            proven = one.fill(watch)
        with one.guest_writes(self.sectors[20:60], seed=97):
            armed = one.arm(watch, proven)
            mark = one.begin_mirror(sync=sync)
            copied = one.ready(mark)
        # and between that it is ready and its end
        with one.guest_writes(self.sectors[50:], seed=55):
            used = one.query()
        one.finish_mirror(mark)
        self.assertEqual(('used', None), (used.state, used.reason))
        self.assertLess(used.dirty, share * armed.size)
        self.assertLess(copied, share * armed.size)
        self.assert_same(one)

    def test_raw_with_an_iothread(self):
        self.check(iothread=True)

    def test_qcow2_of_scsi_with_an_iothread(self):
        self.check(form='qcow2', device='virtio-scsi', iothread=True)

    def test_qcow2_of_nvme_to_raw(self):
        self.check(form='qcow2', device='nvme', target_format='raw')

    def test_top_over_a_base(self):
        self.check(form='qcow2', base=True, sync='top')
