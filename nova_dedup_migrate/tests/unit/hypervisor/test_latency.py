# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import latency
from nova_dedup_migrate.tests import base


def disks(*totals):
    """Return what QEMU answers; totals: (reads, writes, seconds of each)."""
    return [{'stats': {
        'rd_operations': reads, 'wr_operations': writes,
        'rd_total_time_ns': int(seconds * 1e9),
        'wr_total_time_ns': int(seconds * 1e9)}}
        for reads, writes, seconds in totals]


class LatencyTest(base.TestCase):

    def latency(self, *answers):
        guest = mock.create_autospec(hypervisor.Guest, instance=True)
        guest.qmp.side_effect = answers
        return latency.Latency(guest)

    def test_since_the_last_call(self):
        of = self.latency(disks((10, 0, 1.0)),
                          disks((13, 0, 1.0), (0, 1, 1.0)),
                          disks((13, 0, 1.0), (0, 1, 1.0)))
        self.assertEqual((4, 2.0), of.requests())
        self.assertIsNone(of())

    def test_a_disk_was_detached(self):
        of = self.latency(disks((10, 0, 1.0), (9, 0, 2.0)),
                          disks((11, 0, 1.0)), disks((12, 0, 1.5)))
        self.assertEqual((0, 0.0), of.requests())
        self.assertEqual((1, 1.0), of.requests())

    def test_qemu_does_not_answer(self):
        """What it did before does not count as done since."""
        gone = errors.QmpTimeout(command='x', seconds=1)
        of = self.latency(disks((10, 0, 1.0)), gone, disks((12, 0, 1.5)))
        self.assertEqual((0, 0.0), of.requests())
        self.assertEqual((2, 1.0), of.requests())
        of = self.latency(gone, disks((12, 0, 1.5)), disks((13, 0, 2.0)))
        self.assertEqual((0, 0.0), of.requests())
        self.assertEqual((1, 1.0), of.requests())
