# SPDX-License-Identifier: Apache-2.0
"""Replicas that are kept current: prepare, refresh, migrate, with writes.

Every byte of the mirrored disk is compared at the end.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from unittest import mock

from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import replicas
from nova_dedup_migrate.agent import watchings
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage import order
from nova_dedup_migrate.storage import scan
from nova_dedup_migrate.tests.functional.disks import built
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.unit.tasks import fakes
from testkit import spec

PREPARATION = '99999999-0000-4000-8000-000000000009'
NAME = fakes.INSTANCE + '.disk0'
GRANULE = rig.GRANULE


class Port(built.Port):
    """As compute.disk_filler: with what the replica has."""

    def watch(self, target):
        self.resume = self._test.kept.take(replica_objects.DedupTakeRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=fakes.MIGRATION,
            target=target))
        return self._test.watchings.watch(watch_objects.DedupWatchRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=fakes.MIGRATION,
            target=target, resume=self.resume or None,
            above_base=bool(self._test.backing)))


class KeptTest(built.BuiltCase):

    def setUp(self):
        super().setUp()
        self.agents.watch_disk.side_effect = (
            lambda ctxt, host, request: self.watchings.watch(request))
        self.agents.forget_disks.side_effect = (
            lambda ctxt, host, migration: self.watchings.forget(migration))
        self.read = []
        self.order = []
        self.between = lambda offset: None
        self.inverted = False
        real = scan.scan

        def scanned(disk, clear, pace, wanted, *args):
            self.read.append(0)
            one = _Reader(self, disk, clear)
            return real(one, one.clear, pace, self.counted(wanted), *args)

        patcher = mock.patch.object(watchings.scan, 'scan', scanned)
        patcher.start()
        self.addCleanup(patcher.stop)

    def counted(self, wanted):
        for offset, length in wanted:
            self.read[-1] += length
            self.order.append((offset // GRANULE, -(-length // GRANULE)))
            yield offset, length

    def restart(self):
        super().restart()
        self.kept = replicas.Replicas(
            str(self.directory / 'replicas'), 1 << 30, self.fillings,
            self.index, lambda instance: False, self.agents, 1e-6)
        # its thread does not run: refreshes come when the test has them
        os.makedirs(self.directory / 'replicas', exist_ok=True)

    def prepare(self):
        watch = self.watchings.watch(watch_objects.DedupWatchRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=PREPARATION,
            target='disk0', replica=True))
        self.kept.prepare({}, replica_objects.DedupPrepareRequest(
            lease=3600.0, data=watch.data,
            fill=disk_objects.DedupFillRequest(
                instance_uuid=fakes.INSTANCE, migration_uuid=PREPARATION,
                project_id='p1', target='disk0', size=watch.size,
                image=disk_objects.DedupImageFile(path='-', format='raw'),
                granularity=watch.granularity, watch=watch.watch,
                source='source', source_blocks=True)))
        self.done()

    def done(self):
        self.eventually(lambda: self.listed().state != 'running',
                        'the replica is made')
        self.assertEqual(('done', ''),
                         (self.listed().state, self.listed().reason))
        # take note of it
        with mock.patch.object(self.kept, '_refresh'):
            self.kept.refresh()

    def listed(self):
        (found,) = self.kept.list().replicas
        return found

    def refresh(self):
        self.kept.refresh()
        self.done()

    def write(self, granule, value, count=1):
        self.rig_.io('write', '-q', '-P', value, granule * GRANULE,
                     count * GRANULE)

    def assert_current(self):
        """Every byte of the replica is that of the disk."""
        self.assertTrue(
            (self.directory / 'replicas' / NAME).read_bytes()
            == (self.directory / 'source.img').read_bytes())

    def migrate(self):
        """Migrate; return bytes mirrored, and granules that differ."""
        found = self.build(port=Port(self))
        self.assertEqual('', found.reason)
        copied = self.mirror()
        self.assertEqual('used', self.rig_.query().state)
        return copied, self.rig_.differing()

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
        self.assertEqual('', self.kept._all()[NAME].watch)

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
        base = self.raw('base.img', self.random(seed=2))
        source, target = (self.images.overlay(base, 'raw', name)
                          for name in ('source.qcow2', 'target.qcow2'))
        self.image = disk_objects.DedupImageFile(path=str(target),
                                                 format='qcow2')
        self.backing = [disk_objects.DedupImageFile(path=str(base),
                                                    format='raw')]
        self.rig_ = rig.Rig(
            self, self.binary,
            self.images.disk((base, 'raw'), (source, 'qcow2')),
            self.images.disk((base, 'raw'), (target, 'qcow2')),
            (source, 'qcow2'), (target, 'qcow2'))
        self.rig_.start(target=False)
        for granule, value in (3, 5), (9, 0), (20, 7):
            self.write(granule, value, 2)
        self.prepare()
        self.write(9, 8)
        self.write(30, 0)
        self.refresh()
        self.write(20, 9)
        found = self.build(port=Port(self))
        self.assertEqual('', found.reason)
        self.assertLessEqual(self.mirror(sync='top'), 4 * GRANULE)
        self.assert_same(self.rig_)
        # what the base has was not written to the overlay
        self.assertLess(os.stat(target).st_blocks * 512, case.SIZE // 2)

    def test_written_often_is_read_last(self):
        self.flat()
        written = []

        def write(offset):
            if not written:
                written.append(offset)
                self.write(40, 3, 2)
                self.write(2, 3)

        self.between = write
        with mock.patch.object(order, 'WINDOW', 16 * GRANULE), \
                mock.patch.object(order, 'LOOKS', 1 << 20):
            self.prepare()
        self.assertEqual([(0, 16), (16, 16), (32, 8), (42, 6), (48, 16),
                          (64, 1), (40, 2)], self.order)
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
        self.assertEqual('', self.build(port=Port(self)).reason)
        # all but the canary's granule is taken for proven
        self.assertEqual(case.SIZE % GRANULE, self.rig_.query().dirty)
        here, there = ((self.directory / name).read_bytes()
                       for name in ('source.img', 'target.img'))
        self.assertEqual([12], [
            at // GRANULE for at in range(0, case.SIZE - GRANULE, GRANULE)
            if here[at:at + GRANULE] != there[at:at + GRANULE]])

    def test_guest_writes_all_the_time(self):
        self.flat()
        stop = threading.Event()

        def write():
            number = 0
            while not stop.is_set():
                number += 1
                self.rig_.io('aio_write', '-q', '-P', number % 250 + 1,
                             number * 7 % 40 * 4096, 4096)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            self.prepare()
            for _ in range(3):
                self.refresh()
            found = self.build(port=Port(self))
            self.rig_.start_target()
            mark = self.rig_.begin_mirror()
        finally:
            stop.set()
            thread.join()
        self.assertEqual('', found.reason)
        self.rig_.io('aio_flush')
        self.rig_.ready(mark)
        self.assertEqual('used', self.rig_.query().state)
        self.rig_.finish_mirror(mark)
        self.assert_same(self.rig_)

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
            found = self.build(port=Port(self))
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

    def test_migration_fails(self):
        """The replica begins anew: its journal was the migration's."""
        self.flat()
        self.prepare()
        self.write(3, 5)
        port = Port(self)
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
        port = Port(self)
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
            instance_uuid=fakes.INSTANCE, migration_uuid=PREPARATION,
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
        note = self.kept._all()[NAME]
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
        self.assertEqual(note.watch, self.kept._all()[NAME].watch)

    @contextlib.contextmanager
    def forked(self, function):
        """Run a function, and what it begins, in a process of its own.

        It calls agents through this one.
        """
        context = multiprocessing.get_context('fork')
        here, there = context.Pipe()

        def call(method, ctxt, host, request):
            with guard:
                there.send((method, host, request.obj_to_primitive()))
                return objects.DedupObject.obj_from_primitive(there.recv())

        def work():
            for method in 'watch_disk', 'channel_offer':
                getattr(self.agents, method).side_effect = (
                    lambda *args, method=method: call(method, *args))
            function()
            threading.Event().wait()

        def serve():
            with contextlib.suppress(EOFError):
                while True:
                    method, host, request = here.recv()
                    here.send(getattr(self.agents, method)(
                        {}, host, objects.DedupObject.obj_from_primitive(
                            request)).obj_to_primitive())

        guard = threading.Lock()
        process = context.Process(target=work)
        process.start()
        there.close()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield process
        finally:
            process.kill()
            process.join()
            thread.join()


class _Reader:
    """An nbd.NBD that has the guest write between clearing and reading."""

    def __init__(self, test, disk, clear):
        self._test = test
        self._disk = disk
        self._clear = clear
        self._left = None

    def __getattr__(self, name):
        return getattr(self._disk, name)

    def clear(self, offset, length):
        if self._test.inverted:
            self._left = offset, length
        else:
            self._clear(offset, length)
            self._test.between(offset)

    def pread(self, length, offset):
        found = self._disk.pread(length, offset)
        if self._left:
            self._test.between(offset)
            self._clear(*self._left)
        return found
