# SPDX-License-Identifier: Apache-2.0
"""Replicas that are kept current: prepare, refresh, migrate, with writes.

Every byte of the mirrored disk is compared at the end.
"""

import json
import os
import signal
import threading
from unittest import mock

from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import watchings
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage import order
from nova_dedup_migrate.storage import scan
from nova_dedup_migrate.tests.functional.disks import built
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import kept
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.unit.tasks import fakes
from testkit import direct
from testkit import spec

GRANULE = rig.GRANULE


class KeptTest(kept.KeptCase):

    def test_kept_current(self):
        """Only what was written is read, from refresh to refresh."""
        self.flat()
        self.prepare()
        self.assertEqual(case.SIZE, self.read.pop())
        self.assert_current()
        self.write(3, 5)
        self.write(20, 6, 2)
        self.write(21, 0)
        before = self.listed().refreshed
        self.refresh()
        self.assertEqual(3 * GRANULE, self.read.pop())
        self.assert_current()
        self.assertGreater(self.listed().refreshed, before)
        # nothing was written: nothing is read
        self.refresh()
        self.assertEqual([], self.read)
        # more writes, also to what was refreshed; then the migration
        self.write(20, 7)
        self.write(40, 8)
        copied, differing = self.migrate()
        self.assertEqual([], differing)
        self.assertEqual(2 * GRANULE, self.read.pop())
        # both, and the canary's granule if it is another
        self.assertLessEqual(copied, 3 * GRANULE)
        self.assertEqual('', self.kept._all()[kept.NAME].watch)

    def test_nothing_written(self):
        self.flat()
        self.prepare()
        self.read.clear()
        copied, differing = self.migrate()
        self.assertEqual([], differing)
        self.assertEqual([], self.read)
        # the canary's granule, the last and short one
        self.assertEqual(case.SIZE % GRANULE, copied)

    def test_overlay(self):
        """A flat replica of a disk that is an overlay again."""
        self.overlay()
        for granule, value in (3, 5), (9, 0), (20, 7):
            self.write(granule, value, 2)
        self.prepare()
        self.write(9, 8)
        self.write(30, 0)
        self.refresh()
        self.write(20, 9)
        found = self.build(port=kept.Port(self))
        self.assertEqual('', found.reason)
        self.assertLessEqual(self.mirror(sync='top'), 4 * GRANULE)
        self.assert_same(self.rig_)
        # what the base has was not written to the overlay
        self.assertLess(os.stat(self.image.path).st_blocks * 512,
                        case.SIZE // 2)

    def test_written_often_is_read_last(self):
        self.flat()

        def write(offset):
            if offset == 16 * GRANULE:
                self.write(40, 3, 2)
                self.write(2, 3)

        self.between = write
        with mock.patch.object(order, 'WINDOW', 16 * GRANULE), \
                mock.patch.object(order, 'HOLE', 1), \
                mock.patch.object(order, 'LOOKS', 1 << 20):
            self.prepare()
        # from 49 on there is nothing
        self.assertEqual([(49, 15), (64, 1), (0, 16), (16, 16), (32, 8),
                          (42, 6), (48, 1), (40, 2)], self.order)
        # what was written after it was read
        self.order.clear()
        self.refresh()
        self.assertEqual([(2, 1)], self.order)
        self.assert_current()
        self.assertEqual([], self.migrate()[1])

    def write_between(self, granule):
        """Have the guest write once, within the step that reads it."""
        written = []

        def write(offset):
            if offset <= granule * GRANULE < offset + scan.STEP and (
                    not written):
                written.append(granule)
                self.write(granule, 77)

        self.between = write
        return written

    def refresh_with_write(self):
        """The guest writes after the first of the two steps."""
        self.flat()
        self.prepare()
        self.write(12, 1)
        written = self.write_between(12)
        self.refresh()
        self.assertEqual([12], written)

    def test_written_after_the_clearing(self):
        self.refresh_with_write()
        self.assertEqual([], self.migrate()[1])

    def test_written_after_the_reading_in_the_wrong_order(self):
        """The write is lost: this is why a range is cleared first."""
        self.inverted = True
        self.refresh_with_write()
        self.inverted = False
        self.assertEqual('', self.build(port=kept.Port(self)).reason)
        # all but the canary's granule is taken for proven
        self.assertEqual(GRANULE, self.rig_.query().dirty)
        here, there = ((self.directory / name).read_bytes()
                       for name in ('source.img', 'target.img'))
        self.assertEqual([12], [
            at // GRANULE for at in range(0, case.SIZE - GRANULE, GRANULE)
            if here[at:at + GRANULE] != there[at:at + GRANULE]])

    def test_guest_writes_all_the_time(self):
        self.flat()
        with self.written_to():
            self.prepare()
            for _ in range(3):
                self.refresh()
            found = self.build(port=kept.Port(self))
            self.rig_.start_target()
            mark = self.rig_.begin_mirror()
        self.assertEqual('', found.reason)
        self.finish(mark)

    def test_qemu_is_restarted(self):
        """Its watch is gone: all of the disk is read and compared."""
        self.flat()
        self.prepare()
        self.rig_.source.destroy()
        # while nobody looked
        with open(self.directory / 'source.img', 'r+b') as file:
            file.seek(7 * GRANULE)
            file.write(b'x' * GRANULE)
        self.rig_ = rig.Rig(
            self, self.binary, spec.Disk(
                path=self.directory / 'source.img'),
            spec.Disk(path=self.image.path),
            (self.directory / 'source.img', 'raw'),
            (self.image.path, 'raw'))
        self.rig_.start(target=False)
        self.read.clear()
        self.refresh()
        self.assertEqual([case.SIZE], self.read)
        self.assert_current()
        self.assertEqual([], self.migrate()[1])

    def test_qemu_is_restarted_before_the_migration(self):
        self.flat()
        self.prepare()
        with mock.patch.object(watchings, '_resumed', return_value=None):
            found = self.build(port=kept.Port(self))
        self.assertEqual('', found.reason)
        # from the replica, but compared
        self.assertEqual(case.SIZE, self.read[-1])
        self.assertLessEqual(self.mirror(), GRANULE)
        self.assert_same(self.rig_)

    def test_source_agent_is_killed(self):
        """QEMU has the watch, and the destination its name."""
        self.flat()
        self.prepare()
        self.write(5, 9)
        self.restart_source()
        self.read.clear()
        self.refresh()
        self.assertEqual([GRANULE], self.read)
        self.assert_current()
        self.write(6, 9)
        self.restart_source()
        self.assertEqual([], self.migrate()[1])

    def test_destination_agent_is_killed(self):
        """In the middle of a refresh, by SIGKILL."""
        self.flat()
        self.prepare()
        self.write(3, 5)
        self.write(33, 6)
        halted, end = threading.Event(), threading.Event()
        self.addCleanup(end.set)

        def halt(offset):
            if offset > 30 * GRANULE:
                halted.set()
                end.wait(60)

        self.between = halt
        with mock.patch.object(scan, 'STEP', GRANULE), \
                self.forked(lambda: self.kept.refresh()) as process:
            self.assertTrue(halted.wait(60))
            journal = next((self.directory / 'journals').iterdir())
            new = blocks.digest(b'\5' * GRANULE)
            self.eventually(lambda: new in journal.read_bytes(),
                            'a block is proven')
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        self.between = lambda offset: None
        # to what is proven, what is cleared and what is neither
        self.write(3, 7)
        self.write(33, 8)
        end.set()
        self.write(50, 9)
        self.restart()
        self.read.clear()
        self.refresh()
        self.assertEqual([3 * GRANULE], self.read)
        self.assert_current()
        self.write(50, 10)
        self.assertEqual([], self.migrate()[1])

    def snapshot(self):
        """Mirror the disk as a live snapshot does; nothing prepares that."""
        snapshot = self.raw('snapshot.img')
        self.rig_.destination = direct.DirectGuest(
            spec.GuestSpec(binary=self.binary, memory_mib=32, extra_args=[
                '-blockdev', json.dumps({
                    'driver': 'file', 'filename': str(snapshot),
                    'node-name': 'disk0-format'})]),
            self.temporary_dir(), 'snapshot')
        self.addCleanup(self.rig_.destination.destroy)
        self.rig_.start_target()
        mark = self.rig_.begin_mirror()
        self.rig_.ready(mark)
        self.write(14, 6)
        self.rig_.finish_mirror(mark)
        self.rig_.destination.destroy()
        self.assertTrue(snapshot.read_bytes() ==
                        (self.directory / 'source.img').read_bytes())

    def test_live_snapshot(self):
        """The record of writes goes on."""
        self.flat()
        there = self.rig_.destination
        self.prepare()
        self.write(12, 5)
        self.snapshot()
        self.read.clear()
        self.refresh()
        self.assertEqual([2 * GRANULE], self.read)
        self.assert_current()
        self.rig_.destination = there
        self.assertEqual([], self.migrate()[1])

    def test_migration_that_nothing_has_prepared(self):
        """A replica does not make it copy what is in the base."""
        self.overlay()
        self.write(3, 5)
        self.prepare()
        self.write(9, 8)
        self.rig_.start_target()
        mark = self.rig_.begin_mirror(sync='top')
        self.assertLessEqual(self.rig_.ready(mark), 4 * GRANULE)
        self.rig_.finish_mirror(mark)
        self.assertEqual('watching', self.rig_.query().state)
        self.assert_same(self.rig_)

    def test_source_agent_is_killed_in_a_migration(self):
        """A refresh does not end the watch of a target that was filled."""
        self.overlay()
        self.write(3, 5)
        self.prepare()
        port = kept.Port(self)
        port.build('disk0', port.watch('disk0'), 60.0)
        self.eventually(lambda: port.state('disk0', 1.0).state == 'done',
                        'the disk is built')
        port.abort()
        self.restart_source()
        self.refresh()
        self.rig_.start_target()
        # what a mirror of the overlay alone would leave there
        with self.rig_.writer() as writer:
            writer.pwrite(b'w' * GRANULE, 20 * GRANULE)
        self.rig_.mirror(sync='top')
        states = {(each.state, each.recorder)
                  for each in self.rig_.source.disk_watches()}
        self.assert_same(self.rig_)
        self.assertEqual({('dropped', None), ('watching', 'replica')},
                         states)

    def test_failed_migration_to_another_host(self):
        """The record for the replica goes on."""
        self.flat()
        self.prepare()
        self.write(3, 5)
        port = built.Port(self)
        port.build('disk0', port.watch('disk0'), 60.0)
        self.eventually(lambda: port.state('disk0', 1.0).state == 'done',
                        'the disk is built')
        port.abort()
        port.forget()
        self.write(4, 5)
        self.read.clear()
        self.refresh()
        self.assertEqual([2 * GRANULE], self.read)
        self.assert_current()
        self.assertEqual([], self.migrate()[1])

    def test_migration_fails(self):
        """The replica begins anew: its journal was the migration's."""
        self.flat()
        self.prepare()
        self.write(3, 5)
        port = kept.Port(self)
        watch = port.watch('disk0')
        self.assertNotEqual('', port.resume)
        self.assertEqual('', self.kept.take(
            replica_objects.DedupTakeRequest(
                instance_uuid=fakes.INSTANCE,
                migration_uuid=fakes.MIGRATION, target='disk0')))
        port.build('disk0', watch, 60.0)
        self.eventually(lambda: port.state('disk0', 1.0).state == 'done',
                        'the disk is built')
        # the source reads what was written: it cannot be released
        self.assertFalse(port.release('disk0'))
        # a refresh has to wait
        self.kept.refresh()
        self.assertIn('watched for a migration', self.listed().reason)
        port.abort()
        port.forget()
        self.assertEqual((), self.rig_.source.disk_watches())
        self.read.clear()
        self.refresh()
        self.assertEqual([case.SIZE], self.read)
        self.assert_current()

    def test_destination_is_restarted_in_the_migration(self):
        """What it had cleared is not taken from the replica's journal."""
        self.flat()
        self.prepare()
        self.write(3, 5)
        port = kept.Port(self)
        state, done = port.state, []

        def ending(target, wait):
            if not done:
                found = state(target, 60.0)
                done.append(found)
                self.fillings.stop()
                self.write(3, 6)
                self.write(4, 6)
                self.restart()
            return state(target, wait)

        port.state = ending
        self.assertEqual('', self.build(port=port).reason)
        self.mirror()
        self.assert_same(self.rig_)

    def test_reader_that_was_given_up(self):
        """It clears nothing after the next one has begun."""
        self.flat()
        self.watchings.watch(watch_objects.DedupWatchRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=kept.PREPARATION,
            target='disk0', replica=True))
        (watching,) = self.watchings._watched.values()
        with mock.patch.object(scan, 'STEP', GRANULE):
            first = watching.scan([(0, 4 * GRANULE)])
            for _ in range(2):
                next(first)
            second = watching.scan([(GRANULE, 4 * GRANULE)])
            for _ in range(3):
                next(second)
            self.write(1, 7)
            self.assertRaises(storage_errors.DiskUnreadable, list, first)
            dirty = watching.written()
            self.assertTrue(dirty[1])
            self.assertFalse(dirty[0])
            watching.close()
            self.assertRaises(storage_errors.DiskUnreadable, list, second)

    def test_two_hosts(self):
        """One replica of a disk is kept current."""
        self.flat()
        self.prepare()
        note = self.kept._all()[kept.NAME]
        other = watch_objects.DedupWatchRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=fakes.MIGRATION,
            target='disk0', replica=True, resume='0' * 64)
        error = self.assertRaises(errors.WatchRefused,
                                  self.watchings.watch, other)
        self.assertIn('replica on another host', str(error))
        other.resume = None
        self.watchings.watch(other)
        self.kept.refresh()
        self.assertIn('replica on another host', self.listed().reason)
        self.assertEqual(note.watch, self.kept._all()[kept.NAME].watch)
