# SPDX-License-Identifier: Apache-2.0
"""When which volume is read; tests/functional/swaps has what is read."""

import threading
import time
from unittest import mock

from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import fingerprints
from nova_dedup_migrate.swaps import reading
from nova_dedup_migrate.swaps import turns
from nova_dedup_migrate.swaps import watches
from nova_dedup_migrate.tests import base

_SIZE = 8 << 20
_GRANULE = 32768


class Guest:
    """A disk of _SIZE, all of it dirty."""

    def __init__(self):
        self.dirty = _SIZE
        self.calls = []

    def watch_disk(self, device, recorder):
        return self.watch()

    def watch(self):
        return watching.DiskWatch(
            'token', 'vda', 'node', watching.WATCHING, _SIZE, _GRANULE,
            recorder=watching.VOLUME, dirty=self.dirty)

    def disk_watches(self):
        return [self.watch()]

    def dirty_granules(self, watch):
        return b'\xff' * watch.bitmap_bytes

    def qmp(self, command, **arguments):
        return []

    def clear_disk(self, token, offset, length):
        self.calls.append(('clear', offset, length))

    def exported_disk(self, node_name, brief):
        self.calls.append(('export', brief))
        return mock.MagicMock()


class ReaderCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.guest = Guest()
        self.guests = mock.Mock(side_effect=lambda instance: self.guest)
        self.records = watches.Records(str(self.temporary_dir() / 'watches'))
        self.turns = turns.Turns()
        self.stopped = threading.Event()
        self.reader = reading.Reader(self.records, self.turns, self.guests,
                                     lambda: 1e12, self.stopped)
        self.patched('connected', mock.MagicMock())
        self.patched('GAP', 0.0)
        self.read = self.patched('read', mock.Mock(
            side_effect=lambda *args: args[-1]))

    def patched(self, name, value):
        patch = mock.patch.object(reading, name, value)
        self.addCleanup(patch.stop)
        return patch.start()

    def begin(self, *names):
        for name in names or ('vda',):
            self.records.begin(self.guest, 'vda', 'instance', name, 'volume')

    def work(self, seconds=30.0):
        self.reader.work(time.monotonic() + seconds)


class ReaderTest(ReaderCase):

    def test_all_in_slices(self):
        self.begin()
        self.patched('SLICE', 0.0)
        self.work()
        self.assertEqual(
            [(at, 1 << 20) for at in range(0, _SIZE, 1 << 20)],
            [call[0][-2:] for call in self.read.call_args_list])
        # The last one finds that nothing is left.
        self.assertEqual([('export', True)] * 9, self.guest.calls)

    def test_it_rests(self):
        self.begin()
        self.work()
        self.read.reset_mock()
        self.guest.dirty = _SIZE
        # for longer than it was read
        self.reader._passes['instance', 'vda'].due = time.monotonic() + 60
        self.work()
        self.read.assert_not_called()
        self.reader._passes['instance', 'vda'].due = 0
        self.work()
        self.assertEqual(8, self.read.call_count)

    def test_how_long_it_rests(self):
        self.begin()
        with mock.patch.object(reading.time, 'monotonic',
                               side_effect=[100, 100, 100, 103] + [105] * 99):
            self.reader._turn(('instance', 'vda'), 1000)
        self.assertEqual(105 + reading.REST * 5,
                         self.reader._passes['instance', 'vda'].due)

    def test_little_is_not_worth_it(self):
        self.begin()
        self.guest.dirty = _SIZE // 128
        self.work()
        self.read.assert_not_called()

    def test_volumes_take_turns(self):
        self.begin('vda', 'vdb')
        self.patched('SLICE', 0.0)
        self.patched('TURN', 1e-9)
        order = []
        # One slice at least takes place before the end of a turn is seen.
        with mock.patch.object(
                self.reader, '_turn', autospec=True,
                side_effect=lambda name, until: (
                    order.append(name[1]), len(order) < 5)[1]):
            self.work()
        self.assertEqual(['vda', 'vdb', 'vda', 'vdb', 'vda', 'vdb'], order)

    def test_until_it_is_time_to_look(self):
        self.begin()
        self.work(-1.0)
        self.read.assert_not_called()

    def test_stopped(self):
        self.begin()
        self.stopped.set()
        self.work()
        self.read.assert_not_called()

    def test_a_step_that_fails_is_not_tried_for_ever(self):
        """It is, with the next call."""
        self.begin()
        for failure in (errors.NotFillable(reason='why'), OSError('why'),
                        hypervisor_errors.QmpTimeout(
                            command='x', seconds=1), RuntimeError('why')):
            self.read.reset_mock()
            self.read.side_effect = failure
            self.work()
            self.assertEqual(1, self.read.call_count, failure)
        self.assertIsNotNone(self.records.load('instance', 'vda'))

    def test_an_instance_that_is_busy(self):
        self.begin()
        self.guests.side_effect = LookupError('migrating')
        self.work()
        self.read.assert_not_called()
        self.guests.side_effect = lambda instance: self.guest
        with self.turns.unread('instance', 1):
            self.work()
        self.read.assert_not_called()

    def test_what_did_not_reach_the_disk_is_not_used(self):
        self.begin()
        with mock.patch.object(fingerprints.Fingerprints, 'sync',
                               side_effect=errors.NotKept(reason='EIO')):
            self.work()
        self.assertEqual([], list(self.records.names()))

    def test_what_is_removed_is_not_read(self):
        self.begin()
        self.patched('SLICE', 0.0)
        self.read.side_effect = lambda *args: (
            self.records.remove('instance', 'vda'), 0)[1]
        self.work()
        self.assertEqual(1, self.read.call_count)

    def test_without_libnbd(self):
        self.begin()
        with mock.patch.object(reading.libnbd, 'nbd', None):
            self.work()
        self.guests.assert_not_called()


class ReadTest(base.TestCase):

    def test_the_order(self):
        events = mock.Mock()
        events.known.forget.side_effect = lambda *_: None
        records = [manifest.Record(manifest.ZERO, 0, 2),
                   manifest.Record(manifest.SKIPPED, 2, 1),
                   manifest.Record(manifest.DIGESTS, 3, 1, b'd' * 32)]
        watch = Guest().watch()
        events.read.return_value = records, 7
        with mock.patch.object(reading, '_read', events.read):
            self.assertEqual(7, reading.read(
                events.guest, watch, 'disk', events.known, 0, 1 << 17))
        self.assertEqual(
            ['known.forget', 'guest.clear_disk', 'read', 'known.note',
             'known.note'], [call[0] for call in events.mock_calls])
        self.assertEqual((3, b'd' * 32),
                         events.known.note.call_args_list[1][0])

    def test_nothing_is_noted_if_it_was_not_cleared(self):
        events = mock.Mock()
        events.guest.clear_disk.side_effect = hypervisor_errors.QmpTimeout(
            command='x', seconds=1)
        self.assertRaises(
            hypervisor_errors.QmpTimeout, reading.read, events.guest,
            Guest().watch(), 'disk', events.known, 0, 1 << 17)
        self.assertEqual(['known.forget', 'guest.clear_disk'],
                         [call[0] for call in events.mock_calls])
