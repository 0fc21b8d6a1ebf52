# SPDX-License-Identifier: Apache-2.0
"""Disks are built through a real qemu-storage-daemon."""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import subprocess
import threading
from unittest import mock

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import fetch
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import target as targets
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.sources import base as sources
from nova_dedup_migrate.tests.functional.storage import world

BLOCK = blocks.BLOCK


class FormatsTest(world.Case):
    def _whole(self, source_format, target_format):
        data = world.content(1, 301, tail=4096 + 512)
        expected = b''.join(data)
        size = len(expected)
        source = self.create('source', source_format, size)
        self.write(source, [(n * BLOCK, block)
                            for n, block in enumerate(data)
                            if any(block)])
        target = self.create('target', target_format, size)
        disk = self.disk(target, size)
        rebuilt = self.rebuild(disk, [world.Held(data)],
                               self.opener(source))
        proven = self.check(rebuilt, disk, expected)
        # all but the granule of the canary
        self.assertGreaterEqual(proven, size - disk.granularity)
        zeros = sum(len(block) for block in data if not any(block))
        self.assertEqual({'zero': zeros, 'held': size - zeros},
                         rebuilt.sources)
        return target, zeros

    def test_raw(self):
        target, zeros = self._whole('raw', 'raw')
        found = os.stat(target.path)
        self.assertLessEqual(found.st_blocks * 512,
                             found.st_size - zeros + BLOCK)

    def test_qcow2(self):
        self._whole('qcow2', 'qcow2')

    def test_other_formats_than_the_source(self):
        self._whole('raw', 'qcow2')

    def test_overlay(self):
        """Of an overlay on a base only what it has itself is proven."""
        data = world.content(2, 256)
        size = len(data) * BLOCK
        base = self.create('base', 'raw', size)
        self.write(base, [(n * BLOCK, block)
                          for n, block in enumerate(data)])
        over = {n: os.urandom(2 * BLOCK) for n in range(10, 60, 4)}
        over[100] = bytes(2 * BLOCK)
        source = self.create('source', 'qcow2', size, base)
        self.write(source, [(n * BLOCK, block)
                            for n, block in over.items()], [base])
        expected = self.content(source)
        target = self.create('target', 'qcow2', size, base)
        disk = self.disk(target, size, (base,))
        held = [block[at:at + BLOCK] for block in over.values()
                for at in (0, BLOCK)]
        rebuilt = self.rebuild(
            disk, [world.Held(held)],
            self.opener(source, [base], above_base=True))
        proven = self.check(rebuilt, disk, expected)
        self.assertEqual(size - disk.granularity, proven)
        self.assertEqual(26 * BLOCK, rebuilt.sources['held'])
        self.assertEqual(2 * BLOCK, rebuilt.sources['zero'])
        self.assertEqual(size - 28 * BLOCK, rebuilt.sources['absent'])

    def test_overlay_that_has_more(self):
        """A block that only the target has is not taken for the base's."""
        size = 64 * BLOCK
        base = self.create('base', 'raw', size)
        source = self.create('source', 'qcow2', size, base)
        target = self.create('target', 'qcow2', size, base)
        self.write(target, [(20 * BLOCK, b'x' * 2 * BLOCK)], [base])
        disk = self.disk(target, size, (base,))
        rebuilt = self.rebuild(disk, [], self.opener(
            source, [base], above_base=True))
        self.assertFalse(rebuilt.proven[10])
        self.assertEqual(size - disk.granularity,
                         self.check(rebuilt, disk, bytes(size)))

    def test_target_that_does_not_read_as_zeros(self):
        data = world.content(3, 64, zeros=0.6)
        expected = b''.join(data)
        source = self.create('source', 'raw', len(expected))
        self.write(source, [(0, expected)])
        target = self.create('target', 'raw', len(expected))
        with open(target.path, 'r+b') as file:
            file.write(os.urandom(len(expected)))
        disk = self.disk(target, len(expected))
        rebuilt = self.rebuild(disk, [world.Held(data)],
                               self.opener(source))
        self.assertEqual(len(expected) - disk.granularity,
                         self.check(rebuilt, disk, expected))


class RunsTest(world.Case):
    def setUp(self):
        super().setUp()
        self.data = world.content(4, 256)
        self.expected = b''.join(self.data)
        self.size = len(self.expected)
        self.source = self.create('source', 'raw', self.size)
        self.write(self.source, [(0, self.expected)])
        self.target = self.create('target', 'raw', self.size)
        self.to_build = self.disk(self.target, self.size)

    def test_what_no_source_has_is_not_proven(self):
        rebuilt = self.rebuild(self.to_build,
                               [world.Held(self.data[:128])],
                               self.opener(self.source))
        proven = self.check(rebuilt, self.to_build, self.expected)
        self.assertLess(proven, self.size)
        for number in range(128, 256, 2):
            pair = self.data[number:number + 2]
            if any(any(block) and block not in self.data[:128]
                   for block in pair):
                self.assertFalse(rebuilt.proven[number // 2])

    def test_resumed(self):
        """A second run fetches only what the first did not prove."""
        self.rebuild(self.to_build, [world.Held(self.data[:128])],
                     self.opener(self.source))
        cleared = []
        rebuilt = self.rebuild(
            self.to_build, [world.Held(self.data)],
            self.opener(self.source, cleared=lambda *span:
                        cleared.append(span)))
        self.assertEqual(self.size - 65536, self.check(
            rebuilt, self.to_build, self.expected))
        self.assertLess(sum(length for _, length in cleared),
                        self.size * 3 // 4)
        self.assertGreater(rebuilt.sources['kept'], 0)

    def test_target_changed_between_runs(self):
        self.rebuild(self.to_build, [world.Held(self.data)],
                     self.opener(self.source))
        with open(self.target.path, 'r+b') as file:
            file.seek(100 * BLOCK + 5)
            file.write(b'changed')
        rebuilt = self.rebuild(self.to_build, [], self.opener(self.source))
        self.check(rebuilt, self.to_build, self.expected)
        self.assertFalse(rebuilt.proven[50])

    def test_written_since(self):
        """What the guest has written is read again."""
        first = self.rebuild(self.to_build, [world.Held(self.data)],
                             self.opener(self.source))
        new = [os.urandom(BLOCK) for _ in range(2)]
        self.write(self.source, [(80 * BLOCK, b''.join(new))])
        written = bitmap.Bitmap(first.proven.size)
        written.set(40)
        expected = self.content(self.source)
        rebuilt = self.rebuild(self.to_build,
                               [world.Held(self.data + new)],
                               self.opener(self.source), written)
        self.assertEqual(self.size - 65536, self.check(
            rebuilt, self.to_build, expected))

    def test_another_watch(self):
        """With new digests the content that is there is kept."""
        self.rebuild(self.to_build, [world.Held(self.data)],
                     self.opener(self.source))
        other = self.disk(self.target, self.size, watch=b'x' * 32)
        error = self.assertRaises(
            errors.JournalUnusable, self.rebuild, other, [],
            self.opener(self.source))
        self.assertIn('watch of the source', str(error))
        os.unlink(other.journal)
        rebuilt = self.rebuild(other, [], self.opener(self.source),
                               reuse=True)
        self.assertGreaterEqual(self.check(rebuilt, other, self.expected),
                                self.size - 2 * 65536)

    def test_other_size(self):
        disk = self.disk(self.target, self.size + 512)
        error = self.assertRaises(errors.TargetFailed, self.rebuild, disk,
                                  [], self.opener(self.source))
        self.assertIn('instead of', str(error))

    def test_replaced_while_it_is_filled(self):
        def open_manifest(wanted):
            os.rename(self.target.path, self.target.path + '.old')
            self.create('target', 'raw', self.size)
            return self.opener(self.source)(wanted)
        self.assertRaises(errors.TargetReplaced, self.rebuild,
                          self.to_build, [world.Held(self.data)],
                          open_manifest)

    def test_changed_afterwards(self):
        rebuilt = self.rebuild(self.to_build, [world.Held(self.data)],
                               self.opener(self.source))
        with open(self.target.path, 'r+b') as file:
            file.write(b'x')
        error = self.assertRaises(errors.TargetReplaced,
                                  rebuilt.identity.check, self.target.path)
        self.assertIn('ctime', str(error))

    def test_writer_killed(self):
        pids = []
        real = writer.Writer._start

        class Killing(world.Held):
            def read(self, wanted):
                os.kill(pids[0], 9)
                return super().read(wanted)

        def start(daemon, *args):
            real(daemon, *args)
            pids.append(daemon.pid)

        self.useFixture(world.patched(writer.Writer, '_start', start))
        self.assertRaises(errors.TargetFailed, self.rebuild, self.to_build,
                          [Killing(self.data)], self.opener(self.source))
        rebuilt = self.rebuild(self.to_build, [world.Held(self.data)],
                               self.opener(self.source))
        self.assertEqual(self.size - 65536, self.check(
            rebuilt, self.to_build, self.expected))

    def test_rebuilder_killed(self):
        """kill -9: the daemon ends too, and what was proven is kept."""
        context = multiprocessing.get_context('fork')
        pids, done = context.SimpleQueue(), context.Event()

        class Waiting(world.Held):
            def read(self, wanted):
                if done.is_set():
                    threading.Event().wait()
                return super().read(wanted)

        def progress(progress):
            if progress.sources.get('held', 0) > 20 * BLOCK:
                done.set()

        def work():
            real = writer.Writer._start

            def start(daemon, *args):
                real(daemon, *args)
                pids.put(daemon.pid)

            writer.Writer._start = start
            self.rebuild(self.to_build, [Waiting(self.data)],
                         lambda wanted: manifest, progress=progress)

        manifest = self.opener(self.source)([(0, self.size)])
        process = context.Process(target=work)
        process.start()
        daemon = pids.get()
        self.assertTrue(done.wait(50))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        self.eventually(lambda: world.has_ended(daemon), 'the daemon ends')
        rebuilt = self.rebuild(self.to_build, [world.Held(self.data)],
                               self.opener(self.source))
        self.assertGreater(rebuilt.sources['kept'], 10 * BLOCK)
        self.assertEqual(self.size - 65536, self.check(
            rebuilt, self.to_build, self.expected))

    def test_source_gone_after_it_has_cleared(self):
        """What a pass covers is unproven from before the source clears.

        The guest writes; the source clears the bits for the next pass and
        is gone.  Nobody knows of the write any more, so a later run must
        not take the old content for proven.
        """
        self.rebuild(self.to_build, [world.Held(self.data)],
                     self.opener(self.source))
        self.write(self.source, [(80 * BLOCK, os.urandom(2 * BLOCK))])
        written = bitmap.Bitmap(128)
        written.set(40)

        def clear_only(wanted):
            self.assertIn(80 * BLOCK, [offset for offset, _ in wanted])
            raise errors.DiskUnreadable(reason='the source is gone')

        self.assertRaises(errors.DiskUnreadable, self.rebuild,
                          self.to_build, [world.Held(self.data)],
                          clear_only, written)
        rebuilt = self.rebuild(self.to_build, [world.Held(self.data)],
                               self.opener(self.source))
        self.assertFalse(rebuilt.proven[40])
        self.check(rebuilt, self.to_build, self.content(self.source))

    def test_target_that_returns_other_bytes(self):
        """Only what the target returns is proven."""
        real = targets.Target._read

        def read(target, handle, first, count):
            found = real(target, handle, first, count)
            return [memoryview(b'wrong') if first + index == 7 else data
                    for index, data in enumerate(found)]

        self.useFixture(world.patched(targets.Target, '_read', read))
        self.data[7] = os.urandom(BLOCK)
        self.write(self.source, [(7 * BLOCK, self.data[7])])
        rebuilt = self.rebuild(self.to_build, [world.Held(self.data)],
                               self.opener(self.source))
        self.assertFalse(rebuilt.proven[3])

    def test_file_that_may_not_grow(self):
        """A full file system, as RLIMIT_FSIZE has it."""
        real = writer.Writer._start

        def start(daemon, *args):
            real(daemon, *args)
            world.limit(daemon.pid, self.size // 2)

        self.useFixture(world.patched(writer.Writer, '_start', start))
        self.assertRaises(errors.NoSpace, self.rebuild, self.to_build,
                          [world.Held(self.data)],
                          self.opener(self.source))
        # nothing but the limit was in the way
        self.useFixture(world.patched(writer.Writer, '_start', real))
        rebuilt = self.rebuild(self.to_build, [world.Held(self.data)],
                               self.opener(self.source))
        self.assertEqual(self.size - 65536, self.check(
            rebuilt, self.to_build, self.expected))

    def test_reserved_space(self):
        error = self.assertRaises(
            errors.NoSpace, self.rebuild, self.to_build, [],
            self.opener(self.source),
            limits=rebuild.Limits(reserve=1 << 60))
        self.assertIn('storage_reserved_bytes', str(error))

    def test_aborted(self):
        class Aborting(sources.Source):
            name = 'aborting'
            cost = sources.Cost(1.0, 1.0)

            def have(self, wanted):
                build.abort()
                return [False] * len(wanted)

            def read(self, wanted):
                raise NotImplementedError

        build = rebuild.Rebuild(
            self.to_build, [Aborting()], rebuild.Limits(reserve=0),
            program=self.program)
        self.assertRaises(errors.Aborted, build.run,
                          self.opener(self.source))

    def test_no_time(self):
        """Nothing is proven, so there is nothing to use."""
        self.assertRaises(
            errors.TimedOut, self.rebuild, self.to_build, [],
            self.opener(self.source),
            limits=rebuild.Limits(reserve=0, seconds=0.0))

    def stopping(self, source, open_manifest=None, **options):
        """Run a Rebuild of one thread that a source or manifest stops."""
        self.build = rebuild.Rebuild(
            self.to_build, [source], rebuild.Limits(reserve=1, threads=1),
            program=self.program, **options)
        return self.build.run(open_manifest or self.opener(self.source))

    def check_part(self, rebuilt, reason):
        """Compare what is proven: something, and not all."""
        self.assertIn(reason, rebuilt.stopped)
        proven = self.check(rebuilt, self.to_build, self.expected)
        self.assertGreater(proven, 20 * BLOCK)
        self.assertLess(proven, self.size * 3 // 4)

    def held(self, before):
        """Return a source that calls a function before its second read."""
        reads = []

        class Held(world.Held):
            def read(self, wanted):
                reads.append(len(wanted))
                if len(reads) == 2:
                    before()
                return super().read(wanted)

        return Held(self.data)

    def test_time_is_over(self):
        """What is in hand is finished, and nothing more is begun."""
        rebuilt = self.stopping(self.held(lambda: self.build.finish()))
        self.check_part(rebuilt, 'the time for that was over')

    def test_time_is_over_while_a_journal_is_verified(self):
        """What it has is not taken for proven."""
        self.rebuild(self.to_build, [world.Held(self.data)],
                     self.opener(self.source))
        # in what will not be compared any more
        with open(self.target.path, 'r+b') as file:
            file.seek(200 * BLOCK)
            file.write(b'changed')
        real = targets.Target.verify

        def verify(target, first, count):
            self.build.finish()
            return real(target, first, count)

        self.useFixture(world.patched(targets.Target, 'verify', verify))
        self.check_part(self.stopping(world.Held([])),
                        'the time for that was over')

    def test_time_is_over_while_the_manifest_is_waited_for(self):
        """The wait is ended by an error, which is none then."""
        def open_manifest(wanted):
            read = self.opener(self.source)(wanted)
            left = [2 + 2 * 64]

            def waiting(length):
                left[0] -= 1
                if not left[0]:
                    self.build.finish()
                    raise errors.StorageError(reason='it was closed')
                return read(length)

            return waiting

        with self.digest_by_digest():
            rebuilt = self.stopping(world.Held(self.data), open_manifest)
        self.check_part(rebuilt, 'the time for that was over')

    @contextlib.contextmanager
    def digest_by_digest(self):
        """Have manifests with a record for each block."""
        with mock.patch.object(manifest, 'MAX_DIGESTS', 1):
            yield

    def test_replica_has_no_time(self):
        """One that is not complete is none."""
        self.assertRaises(
            errors.TimedOut, self.stopping,
            self.held(lambda: self.build.finish()), replica=True)

    def test_space_becomes_scarce(self):
        """As when the time is over."""
        free = [1 << 30]
        real = os.statvfs

        def statvfs(path):
            return mock.Mock(real(path), f_bavail=free[0], f_frsize=1)

        with mock.patch.object(rebuild.os, 'statvfs', statvfs):
            rebuilt = self.stopping(self.held(lambda: free.insert(0, 0)))
        self.check_part(rebuilt, 'storage_reserved_bytes keeps 1')

    def test_source_cannot_read_on(self):
        """What came before holds."""
        def open_manifest(wanted):
            read = self.opener(self.source)(wanted)
            left = [2 * 64]

            def ending(length):
                left[0] -= 1
                if not left[0]:
                    raise errors.DiskUnreadable(reason='gone')
                return read(length)

            return ending

        with self.digest_by_digest():
            rebuilt = self.stopping(world.Held(self.data), open_manifest)
        self.check_part(rebuilt, 'gone')

    def test_no_thread_writes_after_the_end(self):
        """One that is late has returned before the canary is placed."""
        order = []
        real = targets.Target.fill, targets.Target.place_canary

        def fill(target, record, count):
            order.append('fill')
            try:
                return real[0](target, record, count)
            finally:
                order.append('filled')

        def place(target, *args):
            order.append('canary')
            return real[1](target, *args)

        self.useFixture(world.patched(targets.Target, 'fill', fill))
        self.useFixture(world.patched(targets.Target, 'place_canary',
                                      place))
        noticed = threading.Event()
        stop = fetch.Fetcher.stop

        def stopped(fetcher):
            stop(fetcher)
            noticed.set()

        self.useFixture(world.patched(fetch.Fetcher, 'stop', stopped))

        def finish():
            self.build.finish()
            # the run waits for this thread
            noticed.wait(20)

        rebuilt = self.stopping(self.held(finish))
        self.check_part(rebuilt, 'the time for that was over')
        self.assertEqual('canary', order.pop())
        self.assertEqual(order.count('fill'), order.count('filled'))

    def test_two_writers(self):
        """What one has proven the other would change."""
        other = writer.Writer(self.target, (), self.program)
        self.addCleanup(other.abandon)
        error = self.assertRaises(
            errors.TargetFailed, self.rebuild, self.to_build,
            [world.Held(self.data)], self.opener(self.source))
        self.assertIn('another process fills it', str(error))
        other.close()
        self.rebuild(self.to_build, [], self.opener(self.source))

    def test_the_lock_leaves_the_bytes_of_qemu_alone(self):
        """NFS and GlusterFS make flock() a lock of all bytes."""
        other = writer.Writer(self.target, (), self.program)
        self.addCleanup(other.abandon)
        with open(self.target.path, 'r+b') as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def test_disk_of_a_guest(self):
        """A disk that a guest has open is not written to."""
        pid = self.directory / 'pid'
        subprocess.run(
            [self.emulator, '-S', '-display', 'none', '-daemonize',
             '-pidfile', str(pid), '-serial', 'none', '-drive',
             'file=%s,if=virtio,format=raw' % self.target.path],
            check=True, stdin=subprocess.DEVNULL)
        guest = int(pid.read_text())
        try:
            error = self.assertRaises(
                errors.TargetFailed, self.rebuild, self.to_build,
                [world.Held(self.data)], self.opener(self.source))
        finally:
            os.kill(guest, signal.SIGKILL)
        self.assertIn('lock', str(error))
        self.assertTrue(self.content(self.target) == bytes(self.size))

    def test_symbolic_link(self):
        os.symlink(self.target.path, self.directory / 'link')
        disk = self.disk(writer.Image(str(self.directory / 'link'), 'raw'),
                         self.size)
        error = self.assertRaises(errors.TargetFailed, self.rebuild, disk,
                                  [], self.opener(self.source))
        self.assertIn('symbolic link', str(error))

    def test_outside(self):
        """No path leads out of the directories that are allowed."""
        other = self.temporary_dir() / 'other'
        other.write_bytes(bytes(self.size))
        disk = self.disk(writer.Image(str(other), 'raw'), self.size)
        self.assertRaises(errors.TargetFailed, self.rebuild, disk, [],
                          self.opener(self.source))
