# SPDX-License-Identifier: Apache-2.0
"""The order in which a volume is read decides whether the new one is right.

Each rule has a test in which it is broken: the new volume is then a wrong
one.  In the tests beside these the guest does the same, and it is right.
"""

import contextlib
from unittest import mock

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import reading
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.functional.swaps import volume

_LAST = -(-case.SIZE // rig.GRANULE) - 1
#: Number of the granule that the guest writes to.
_THERE = 5


class KilledError(Exception):
    """nova-compute is killed."""


class OrderCase(volume.VolumeCase):

    def write(self, pattern=0x55):
        self.one.io('write', '-P', pattern, _THERE * rig.GRANULE,
                    rig.GRANULE)

    @contextlib.contextmanager
    def at(self, owner, name, before=None, after=None):
        """Have something happen, once, before or after a call."""
        theirs = getattr(owner, name)
        left = [1]

        def call(*args, **given):
            first = left and left.pop()
            if first and before:
                before()
            result = theirs(*args, **given)
            if first and after:
                after()
            return result

        with mock.patch.object(owner, name, call):
            yield

    def come_to(self, record, reader):
        """Fill and mirror; return the granules that are wrong."""
        self.fill(record, reader)
        # The guest wrote to it, and most of the others are left out.
        self.assertGreater(len(self.left_out), 20)
        wrong = self.wrong()
        if not wrong:
            self.one.mirror()
            self.assert_same(self.one)
        return wrong

    def kill(self):
        raise KilledError()

    def read_a_step(self, record, number=0, wrong=False):
        """Read as the reader does, or clear after reading."""
        watch = self.of(record)
        length = min(reading.STEP, watch.size - number * reading.STEP)
        with self.known(record) as known, self.one.source.exported_disk(
                watch.node_name) as path, reading.connected(path) as disk:
            if not wrong:
                reading.read(self.one.source, watch, disk, known,
                             number * reading.STEP, length)
                return
            with mock.patch.object(self.one.source, 'clear_disk'):
                reading.read(self.one.source, watch, disk, known,
                             number * reading.STEP, length)
            self.write()
            self.one.source.clear_disk(watch.token, number * reading.STEP,
                                       length)


class ClearThenReadTest(OrderCase):

    def test_a_write_between_clearing_and_reading(self):
        record, reader = self.watch(), self.backup()
        with self.at(self.one.source, 'clear_disk', after=self.write):
            self.read()
        self.assertEqual([], self.come_to(record, reader))

    def test_a_write_before_clearing(self):
        record, reader = self.watch(), self.backup()
        with self.at(self.one.source, 'clear_disk', before=self.write):
            self.read()
        self.assertEqual([], self.come_to(record, reader))

    def test_a_write_while_it_is_read(self):
        record, reader = self.watch(), self.backup()
        with self.at(reading, '_read', after=self.write):
            self.read()
        self.assertEqual([], self.come_to(record, reader))

    def test_broken_cleared_after_it_was_read(self):
        record, reader = self.watch(), self.backup()
        self.read_a_step(record, wrong=True)
        self.assertEqual([_THERE], self.come_to(record, reader))

    def test_what_could_not_be_cleared_is_not_known(self):
        record = self.watch()
        with self.at(self.one.source, 'clear_disk', before=self.kill):
            self.assertRaises(KilledError, self.read_a_step, record)
        with self.known(record) as known:
            self.assertFalse(next(known.pieces())[1].any())


class EmptyThenClearTest(OrderCase):
    """What was known before must not outlive the bit that revokes it."""

    def read_before(self):
        """Read all, then have the guest write; return what is needed."""
        record, reader = self.watch(), self.backup()
        self.read()
        self.write()
        return record, reader

    def test_killed_before_it_is_emptied(self):
        record, reader = self.read_before()
        with mock.patch.object(
                reading.fingerprints.Fingerprints, 'forget',
                side_effect=KilledError):
            self.assertRaises(KilledError, self.read_a_step, record)
        self.assertEqual([], self.come_to(record, reader))

    def test_killed_before_it_is_cleared(self):
        record, reader = self.read_before()
        with self.at(self.one.source, 'clear_disk', before=self.kill):
            self.assertRaises(KilledError, self.read_a_step, record)
        self.assertEqual([], self.come_to(record, reader))

    def test_killed_before_it_is_read(self):
        record, reader = self.read_before()
        with self.at(self.one.source, 'clear_disk', after=self.kill):
            self.assertRaises(KilledError, self.read_a_step, record)
        self.assertEqual([], self.come_to(record, reader))

    def test_killed_before_it_is_noted(self):
        record, reader = self.read_before()
        with self.at(reading, '_read', after=self.kill):
            self.assertRaises(KilledError, self.read_a_step, record)
        self.assertEqual([], self.come_to(record, reader))

    def test_killed_when_some_of_it_is_noted(self):
        record, reader = self.read_before()
        with self.at(reading.fingerprints.Fingerprints, 'note',
                     after=self.kill):
            self.assertRaises(KilledError, self.read_a_step, record)
        self.assertEqual([], self.come_to(record, reader))

    def test_read_again(self):
        record, reader = self.read_before()
        self.read_a_step(record)
        self.assertEqual([], self.come_to(record, reader))

    def test_broken_not_emptied(self):
        """Killed after the clearing, with the entries of before."""
        record, reader = self.read_before()
        with mock.patch.object(
                reading.fingerprints.Fingerprints, 'forget'), self.at(
                self.one.source, 'clear_disk', after=self.kill):
            self.assertRaises(KilledError, self.read_a_step, record)
        self.assertEqual([_THERE], self.come_to(record, reader))


class NobodyReadsTest(OrderCase):
    """Nothing is cleared once the filler knows what it fills."""

    def filled_while(self, record, reader, work):
        """Fill and mirror; the guest writes and work goes on meanwhile."""
        def meanwhile():
            self.write()
            work()

        with self.at(rebuild.Rebuild, 'run', after=meanwhile):
            return self.come_to(record, reader)

    def test_the_reader_finds_nothing_to_read(self):
        record, reader = self.watch(), self.backup()
        self.read()
        self.reader._passes.clear()
        with mock.patch.object(reading, 'WORTH', 0):
            self.assertEqual([], self.filled_while(record, reader,
                                                   self.read))

    def test_the_reader_that_has_begun_a_turn(self):
        """It is between two slices when the volume is filled."""
        record, reader = self.watch(), self.backup()
        found = []

        def fill(seconds):
            if seconds == reading.GAP and not found:
                found.append(self.filled_while(record, reader, lambda: None))

        with (mock.patch.object(reading, 'SLICE', 0.0),
              mock.patch.object(reading, 'GAP', 0.123),
              mock.patch.object(self.reader._stopped, 'wait', fill),
              mock.patch.object(self.reader._stopped, 'is_set',
                                lambda: False)):
            self.reader._turn(volume.NAME, float('inf'))
        self.assertEqual([[]], found)
        self.assertIn(volume.NAME, self.reader._passes)

    def test_the_file_has_one_owner(self):
        record, reader = self.watch(), self.backup()
        self.read()
        with self.known(record):
            self.assertRaises(errors.NotFillable, self.fill, record, reader)
            self.assertRaises(errors.NotFillable, self.read_a_step, record)

    def test_broken_somebody_reads(self):
        record, reader = self.watch(), self.backup()
        self.read()
        watch = self.of(record)

        def clear():
            self.one.source.clear_disk(
                watch.token, _THERE * rig.GRANULE, rig.GRANULE)

        self.assertEqual([_THERE], self.filled_while(record, reader, clear))


class TurnsTest(OrderCase):

    def test_a_slice_ends_for_who_needs_the_guest(self):
        record = self.watch()
        others = contextlib.ExitStack()

        def need():
            # One more of them, before the first step is done.
            self.turns._others['instance'] += 1

        with others, self.at(reading, '_read', after=need):
            self.assertFalse(self.reader._turn(volume.NAME, float('inf')))
            self.assertEqual(reading.STEP // rig.GRANULE,
                             self.clear(record))
            self.assertEqual([], self.one.source.qmp('query-block-exports'))
            # and none begins
            self.assertFalse(self.reader._turn(volume.NAME, float('inf')))
            self.assertEqual(reading.STEP // rig.GRANULE,
                             self.clear(record))

    def test_somebody_else_has_the_server(self):
        record = self.watch()
        with self.one.source.exported_disk(self.of(record).node_name):
            self.read()
        self.assertEqual(case.SIZE, self.of(record).dirty)
        self.read()
        self.assertEqual(0, self.of(record).dirty)

    def test_a_backup_that_ends_within_a_block(self):
        """The last block of this volume is short."""
        record = self.watch()
        self.read()
        with self.known(record) as known:
            _, entries = next(known.pieces())
            self.assertEqual(
                blocks.digest(self.image.read_bytes()[
                    _LAST * rig.GRANULE:])[:16], entries[-1].tobytes())
