# SPDX-License-Identifier: Apache-2.0
import os
from unittest import mock

from nova_dedup_migrate.hypervisor import disk_export
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import qmp_guest
from nova_dedup_migrate.tests import base


class ExportedTest(base.TestCase):
    """QEMU's NBD server, if somebody has started it before."""

    def setUp(self):
        super().setUp()
        self.guest = mock.create_autospec(qmp_guest.QmpGuest, instance=True)
        self.guest.qmp.side_effect = self.qmp
        self.guest.pass_fd.side_effect = ['first', 'second']
        self.calls = []
        self.exports = []
        self.running = True

    def qmp(self, command, **arguments):
        self.calls.append(command)
        if command == 'query-block-exports':
            return self.exports
        if command == 'nbd-server-start':
            if self.running:
                raise errors.QmpError(
                    error_class='GenericError', command=command,
                    description='NBD server already running')
            self.running = True
        elif command == 'nbd-server-stop':
            self.running = False
        elif command == 'block-export-add':
            self.exports = [{'id': arguments['id']}]
        return {}

    def export(self):
        with disk_export.exported(self.guest, 'node'):
            pass

    def refused(self, *names):
        self.exports = [{'id': name} for name in names]
        self.assertRaises(errors.QmpError, self.export)
        self.assertNotIn('nbd-server-stop', self.calls)
        self.guest.close_fd.assert_called_once_with('first')

    def test_nobody_has(self):
        self.running = False
        self.export()
        self.assertEqual(['nbd-server-start', 'block-export-add',
                          'nbd-server-stop'], self.calls)

    def test_a_process_of_ours_that_is_gone(self):
        self.exports = [{'id': 'dedup-disk-4194305-1-1'}]
        self.export()
        self.assertEqual(
            ['nbd-server-start', 'query-block-exports', 'nbd-server-stop',
             'nbd-server-start', 'block-export-add', 'nbd-server-stop'],
            self.calls)
        self.guest.close_fd.assert_called_once_with('first')

    def test_one_that_this_process_could_not_stop(self):
        """Because libvirtd was away."""
        self.running = False
        self.export()
        self.running, self.calls = True, []
        disk_export.stop_left(self.guest)
        self.assertEqual(['query-block-exports', 'nbd-server-stop'],
                         self.calls)

    def test_one_that_is_read(self):
        self.running = False
        with disk_export.exported(self.guest, 'node'):
            mine = self.exports[0]['id']
            disk_export.stop_left(self.guest)
            self.guest.pass_fd.side_effect = ['first']
            self.guest.close_fd.reset_mock()
            self.calls = []
            self.refused(mine)

    def test_another_process_that_reads(self):
        parent = os.getppid()
        self.refused('dedup-disk-%d-%d-1' % (
            parent, disk_export._began(parent)))

    def test_somebody_else(self):
        self.refused('libvirt-nbd')

    def test_one_of_ours_and_somebody_else(self):
        self.refused('dedup-disk-4194305-1-1', 'libvirt-nbd')

    def test_nothing_is_exported(self):
        self.refused()
