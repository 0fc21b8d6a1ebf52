# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.tasks import undo
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples
from nova_dedup_migrate.tests.unit.tasks import fakes

TIMEOUT = errors.QmpTimeout(command='x', seconds=60)


class UndoTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.disk = samples.Disk()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.tracking(False)

    def tracking(self, on):
        self.guest.dedup_statistics.return_value = (
            statistics.DedupStatistics(tracking=on))

    def undo(self, *entries):
        """Undo entries of the log; return those that are left."""
        self.operation = fakes.operation(self.disk, undo=list(entries))
        undo.undo(self.operation, self.guest)
        return self.operation.durable.undo

    def calls(self):
        """Return the names of what has changed the guest, in order."""
        return [call[0] for call in self.guest.method_calls
                if call[0] != 'dedup_statistics']

    def test_empty(self):
        self.assertEqual([], self.undo())
        self.assertEqual([], self.guest.method_calls)
        self.assertEqual([], self.disk.written)

    def test_armed(self):
        self.assertEqual([], self.undo(operations.UNDO_ARM))
        self.guest.disarm_dedup.assert_called_once_with()
        self.assertEqual([('requested',)], self.disk.written)

    def test_map(self):
        self.assertEqual([], self.undo(operations.UNDO_MAP))
        self.guest.track_dedup.assert_called_once_with(False)

    def test_map_of_a_guest_whose_io_is_recorded(self):
        """Switching that off would forget what it has recorded."""
        self.tracking(True)
        self.assertEqual([], self.undo(operations.UNDO_MAP))
        self.guest.track_dedup.assert_not_called()

    def test_disks(self):
        """Those that are not for a mirror go on."""
        self.guest.disk_watches.return_value = tuple(
            watching.DiskWatch(token, 'disk0', 'node', watching.WATCHING,
                               1 << 20, 32768, recorder=recorder)
            for token, recorder in (('1', watching.VOLUME), ('2', None),
                                    ('3', watching.REPLICA)))
        self.assertEqual([], self.undo(operations.UNDO_DISKS))
        self.guest.drop_disk.assert_called_once_with('2')

    def test_newest_first(self):
        self.assertEqual([], self.undo(operations.UNDO_MAP,
                                       operations.UNDO_ARM))
        self.assertEqual(['disarm_dedup', 'track_dedup'], self.calls())

    def test_what_only_nova_can_undo_stays(self):
        self.assertEqual(
            [operations.UNDO_PAUSE],
            self.undo(operations.UNDO_PAUSE, operations.UNDO_ARM))
        self.assertEqual(['disarm_dedup'], self.calls())

    def test_an_entry_of_a_later_release_stays(self):
        self.assertEqual(['move the moon'], self.undo('move the moon'))

    def test_a_handler_that_fails(self):
        self.guest.disarm_dedup.side_effect = TIMEOUT
        self.assertEqual(
            [operations.UNDO_ARM],
            self.undo(operations.UNDO_MAP, operations.UNDO_ARM))
        self.guest.track_dedup.assert_called_once_with(False)
        warning, = self.operation.warnings
        self.assertIn(operations.UNDO_ARM, warning)

    def test_a_qemu_that_has_ended_keeps_nothing(self):
        for error in (errors.GuestNotRunning(name='x'),
                      errors.QmpDisconnected(command='x')):
            self.guest.disarm_dedup.side_effect = error
            self.guest.dedup_statistics.side_effect = error
            self.assertEqual([], self.undo(operations.UNDO_MAP,
                                           operations.UNDO_ARM))
            self.assertEqual([], self.operation.warnings)

    def test_twice(self):
        self.undo(operations.UNDO_ARM)
        undo.undo(self.operation, self.guest)
        self.guest.disarm_dedup.assert_called_once_with()

    def test_every_entry_has_somebody(self):
        entries = {value for name, value in vars(operations).items()
                   if name.startswith('UNDO_')}
        self.assertEqual(entries - {operations.UNDO_PAUSE},
                         set(undo._HANDLERS))
