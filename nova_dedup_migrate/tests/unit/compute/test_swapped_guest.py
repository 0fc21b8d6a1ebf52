# SPDX-License-Identifier: Apache-2.0
"""The guest that Nova has while it swaps a volume."""

from unittest import mock

import libvirt
from nova.virt.libvirt import guest as libvirt_guest

from nova_dedup_migrate.compute import swapped_guest
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.swaps import running
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import fakes

SWAP = operations.Swap(fakes.UUID, 'vdb', 'old', 'new', '/x')


class SwappedGuestTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.kept = operations.SwapOperations(str(self.temporary_dir()))
        self.running = running.RunningSwap(self.kept, SWAP)
        self.theirs = mock.create_autospec(libvirt_guest.Guest,
                                           instance=True)
        self.device = mock.create_autospec(libvirt_guest.BlockDevice,
                                           instance=True)
        self.device.get_job_info.return_value = (
            libvirt_guest.BlockDeviceJobInfo(2, 0, 3, 4))
        self.device.is_job_complete.return_value = False
        self.theirs.get_block_device.return_value = self.device
        self.guest = swapped_guest.SwappedGuest(self.theirs, self.running)
        self.disk = self.guest.get_block_device('vdb')
        for name in 'copy', 'abort_job':
            getattr(self.device, name).side_effect = (
                lambda *args, **kwargs: self.phases.append(
                    self.kept.load(fakes.UUID, 'vdb').phase))
        self.phases = []

    def request(self):
        self.kept.request_abort(SWAP)

    def test_the_rest_is_the_guests(self):
        self.theirs.get_xml_desc.return_value = 'xml'
        self.assertEqual('xml', self.guest.get_xml_desc(dump_inactive=True))
        self.theirs.get_xml_desc.assert_called_once_with(dump_inactive=True)
        self.disk.resize(5)
        self.device.resize.assert_called_once_with(5)

    def test_as_nova_does_it(self):
        """What comes next is on the disk before it is done."""
        self.disk.abort_job()
        self.disk.copy('xml', reuse_ext=True)
        self.device.copy.assert_called_once_with('xml', reuse_ext=True)
        self.assertIs(False, self.disk.is_job_complete())
        self.assertEqual((3, 4, {'volume': 3}), (
            self.running.swap.done, self.running.swap.total,
            self.running.swap.sources))
        self.device.is_job_complete.return_value = True
        self.assertIs(True, self.disk.is_job_complete())
        self.disk.abort_job(pivot=True)
        self.assertEqual([mock.call(pivot=False), mock.call(pivot=True)],
                         self.device.abort_job.mock_calls)
        self.assertEqual([operations.BEGUN, operations.MIRRORING,
                          operations.PIVOTING], self.phases)

    def test_libvirts_errors_are_novas(self):
        error = fakes.libvirt_error(libvirt.VIR_ERR_INTERNAL_ERROR)
        self.device.get_job_info.side_effect = error
        self.disk.is_job_complete()
        self.device.get_job_info.return_value = None
        self.disk.is_job_complete()
        self.device.is_job_complete.side_effect = error
        self.assertRaises(libvirt.libvirtError, self.disk.is_job_complete)

    def test_aborted_before_the_mirror(self):
        self.request()
        self.assertRaises(errors.Aborted, self.disk.copy, 'xml')
        self.device.copy.assert_not_called()

    def test_aborted_in_the_mirror(self):
        self.disk.copy('xml')
        self.request()
        self.assertRaises(errors.Aborted, self.disk.is_job_complete)
        self.device.abort_job.assert_called_once_with()

    def test_aborted_before_the_pivot(self):
        self.request()
        self.assertRaises(errors.Aborted, self.disk.abort_job, pivot=True)
        self.device.abort_job.assert_called_once_with()

    def test_a_mirror_that_libvirt_does_not_end(self):
        """Nova goes on with it: nobody else would."""
        self.device.abort_job.side_effect = fakes.libvirt_error(
            libvirt.VIR_ERR_OPERATION_TIMEOUT)
        self.request()
        with self.assertLogs(swapped_guest.LOG.logger) as logs:
            self.disk.is_job_complete()
            self.disk.is_job_complete()
        self.assertEqual(1, len(logs.output))
        self.device.abort_job.side_effect = None
        self.assertRaises(errors.Aborted, self.disk.is_job_complete)

    def test_a_record_that_cannot_be_written(self):
        """There is no mirror, and no pivot, that it does not have."""
        with mock.patch.object(self.kept, 'write', side_effect=OSError):
            self.assertRaises(OSError, self.disk.copy, 'xml')
            self.device.copy.assert_not_called()
            self.assertRaises(OSError, self.disk.abort_job, pivot=True)
        self.device.abort_job.assert_called_once_with()
