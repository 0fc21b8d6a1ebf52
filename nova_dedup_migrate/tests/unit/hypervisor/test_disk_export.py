# SPDX-License-Identifier: Apache-2.0
import itertools
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
        self.guest.pass_fd.side_effect = itertools.chain(
            ['first'], itertools.repeat('second'))
        self.calls = []
        self.exports = []
        self.running = True
        for name, value in (('_LOOK', 0.01), ('PATIENCE', 0.1)):
            patch = mock.patch.object(disk_export, name, value)
            patch.start()
            self.addCleanup(patch.stop)

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
        self.guest.close_fd.assert_any_call('first')

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
            self.guest.pass_fd.side_effect = itertools.repeat('first')
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

    def slice(self):
        """A slice of another process that is under way."""
        parent = os.getppid()
        self.exports = [{'id': 'dedup-slice-%d-%d-1' % (
            parent, disk_export._began(parent))}]

    def test_the_end_of_a_slice_is_waited_for(self):
        self.slice()
        looks = []

        def sleep(seconds):
            looks.append(seconds)
            if len(looks) == 3:
                # QEMU removes the export first.
                self.exports = []
            self.running = len(looks) < 5

        with mock.patch.object(disk_export.time, 'sleep', sleep):
            self.export()
        self.assertEqual(5, len(looks))
        self.assertEqual(1, self.calls.count('nbd-server-stop'))
        self.assertEqual(5, self.guest.close_fd.call_count)

    def test_a_slice_that_does_not_end(self):
        self.slice()
        self.refused(self.exports[0]['id'])

    def test_a_slice_waits_for_nobody(self):
        self.slice()
        self.assertRaises(errors.QmpError, disk_export.exported(
            self.guest, 'node', brief=True).__enter__)
        self.assertEqual(1, self.calls.count('nbd-server-start'))

    def test_a_slice_says_that_it_is_one(self):
        self.running = False
        with disk_export.exported(self.guest, 'node', brief=True):
            self.assertTrue(disk_export._is_brief(self.guest))
