# SPDX-License-Identifier: Apache-2.0
"""What every implementation of hypervisor.base has to do.

A test class derives from one of the suites here and from a TestCase
that says what its guests are, with two methods:

make(name)
    Return a Guest that boots self.image, not started.  All guests of a
    test share that disk.  The guest is destroyed after the test.
console(guest)
    Return the bytes the guest has written to COM1 on that host.

What an implementation refuses with NotOffered is skipped, with the reason
it gives.

The guest is the boot sector: it checks its own memory all the time and
prints 'B' while it is right.
"""

import dataclasses
import os
import tempfile

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import memory
from nova_dedup_migrate.hypervisor import options
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.tests.functional import bootsector

MIB = 1 << 20


class Suite:
    """Guests, and what tests say about them.

    :cvar boot: the guest's work: 8 MiB of RAM, a pass every 50 ms or so
    """

    boot = bootsector.BootSector(chunks=14, pages=2048, delay=50_000_000)

    def setUp(self):
        super().setUp()
        self.dir = self.temporary_dir()
        self.image = self.boot.write_image(self.dir / 'disk.img')

    def started(self, name='source'):
        """Return a guest that has booted and works."""
        guest = self.make(name)
        guest.start()
        self.assert_works(guest)
        return guest

    def assert_works(self, guest, passes=2):
        """Wait until the guest has made that many more passes."""
        before = self.console(guest).count(b'B')

        def done():
            output = self.console(guest)
            self.assertNotIn(b'X', output, 'the guest found wrong memory')
            self.assertNotIn(b'E', output, 'the guest cannot read its disk')
            return output.count(b'B') >= before + passes
        self.eventually(done, '%d passes of %s' % (passes, guest.name))

    def assert_same_memory(self, source, destination):
        """Compare all RAM of two guests that do not run."""
        with self.memory_dir() as folder:
            self.assert_identical(
                source.save_memory(folder + '/source'),
                destination.save_memory(folder + '/destination'))

    def memory_dir(self):
        # Memory, if there is enough of it, is faster than a disk.
        place = '/dev/shm' if os.access('/dev/shm', os.W_OK) else None
        return tempfile.TemporaryDirectory(dir=place)

    def assert_identical(self, one, other):
        result = memory.compare(one, other)
        self.assertGreater(result.pages, self.boot.pages)
        self.assertEqual((0, ()), (result.differing, result.addresses))

    def migrate(self, source, destination, **given):
        """Begin to migrate; the guest stays paused at its destination."""
        given.setdefault('paused', True)
        try:
            return source.migrate(destination,
                                  options.MigrationOptions(**given))
        except errors.NotOffered as error:
            self.skipTest(str(error))

    def assert_arrives(self, source, destination, migration):
        """Wait for the end, compare RAM, let the guest go on."""
        final = migration.wait(60)
        self.assertEqual('completed', final.status)
        self.assert_left(source)
        self.assertEqual('paused', destination.run_state())
        if source.source_stays:
            self.assert_same_memory(source, destination)
        destination.cont()
        self.assert_works(destination)
        return final

    def assert_left(self, source):
        """The guest is no longer here, and cannot be taken for it."""
        if source.source_stays:
            self.assertEqual('postmigrate', source.run_state())
        else:
            self.assertFalse(source.is_alive())
            self.assertRaises(errors.GuestNotRunning, source.run_state)

    def assert_paused_arrives(self, source, destination, **given):
        """Migrate a guest that does not run; compare its RAM."""
        source.pause()
        with self.memory_dir() as folder:
            before = source.save_memory(folder + '/before')
            final = self.migrate(source, destination, **given).wait(60)
            self.assert_left(source)
            self.assertEqual('paused', destination.run_state())
            after = destination.save_memory(folder + '/after')
            self.assert_identical(before, after)
        destination.cont()
        self.assert_works(destination)
        return final


class LifecycleSuite(Suite):
    """Start, stop, monitor."""

    def test_start_and_destroy(self):
        guest = self.started()
        self.assertEqual('running', guest.run_state())
        guest.destroy()
        self.assertFalse(guest.is_alive())
        guest.destroy()

    def test_start_again_after_destroy(self):
        guest = self.started()
        guest.destroy()
        guest.start()
        self.assert_works(guest)

    def test_start_paused(self):
        guest = self.make('paused')
        guest.start(paused=True)
        self.assertIn(guest.run_state(), ('prelaunch', 'paused'))
        self.assertEqual(b'', self.console(guest))
        guest.cont()
        self.assert_works(guest)

    def test_pause_and_cont_with_their_events(self):
        guest = self.started()
        mark = guest.events.mark()
        guest.pause()
        guest.events.wait('STOP', mark, 10)
        self.assertEqual('paused', guest.run_state())
        written = self.console(guest)
        guest.cont()
        guest.events.wait('RESUME', mark, 10)
        self.assert_works(guest)
        self.assertTrue(self.console(guest).startswith(written))
        self.assertEqual(['STOP', 'RESUME'],
                         [e.name for e in guest.events.since(mark)])

    def test_subscription(self):
        guest = self.started()
        names = []
        end = guest.events.subscribe(lambda event: names.append(event.name))
        guest.pause()
        guest.cont()
        self.eventually(lambda: 'RESUME' in names, 'second event')
        end()
        guest.pause()
        guest.events.wait('STOP', guest.events.mark() - 1, 10)
        self.assertEqual(['STOP', 'RESUME'], names)

    def test_qmp_error_has_fields(self):
        guest = self.make('guest')
        guest.start(paused=True)
        error = self.assertRaises(errors.QmpError, guest.qmp, 'qom-get',
                                  path='/nowhere', property='type')
        self.assertEqual('qom-get', error.command)
        self.assertEqual('DeviceNotFound', error.error_class)
        self.assertIn('/nowhere', error.description)

    def test_unknown_command(self):
        guest = self.make('guest')
        guest.start(paused=True)
        error = self.assertRaises(errors.CommandNotFound, guest.qmp,
                                  'x-no-such-command')
        self.assertEqual('x-no-such-command', error.command)

    def test_command_to_a_guest_that_is_gone(self):
        guest = self.make('guest')
        guest.start(paused=True)
        guest.destroy()
        self.assertRaises(errors.GuestNotRunning, guest.qmp, 'stop')

    def test_memory_of_a_paused_guest_does_not_change(self):
        guest = self.started()
        guest.pause()
        first = guest.save_memory(self.dir / 'first')
        second = guest.save_memory(self.dir / 'second')
        self.assertTrue(memory.compare(first, second).identical)
        guest.cont()
        self.assert_works(guest)
        guest.pause()
        third = guest.save_memory(self.dir / 'third')
        changed = memory.compare(first, third, limit=10000)
        # the pages of the window and no other
        window = range(self.boot.start,
                       self.boot.start + 4096 * self.boot.pages, 4096)
        self.assertEqual(set(), set(changed.addresses) - set(window))
        self.assertGreater(changed.differing, 0)


class FactsSuite(Suite):
    """What a planner asks for."""

    def test_dirty_rate(self):
        guest = self.started()
        # It writes to 8 MiB all the time, unless the machine has other
        # things to do.
        rate = self.eventually(guest.dirty_rate, 'writes', 60)
        self.assertLess(rate, 12 * MIB)
        guest.pause()
        self.assertLess(guest.dirty_rate(), MIB)

    def test_disks(self):
        guest = self.make('guest')
        guest.start(paused=True)
        (name, device), = guest.disks().items()
        self.assertTrue(name)
        guest.qmp('qom-get', path='/machine/peripheral/' + device,
                  property='type')

    def test_progress_without_a_migration(self):
        guest = self.started()
        now = guest.progress()
        self.assertEqual('none', now.status)
        self.assertEqual(guest.is_patched(), now.dedup is not None)


class MigrationSuite(Suite):
    """Migration with each option."""

    def test_paused_guest(self):
        source, destination = self.started(), self.make('destination')
        final = self.assert_paused_arrives(source, destination)
        self.assertGreater(final.pages.peer, self.boot.pages)

    def test_precopy(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination)
        final = self.assert_arrives(source, destination, migration)
        self.assertGreaterEqual(final.rounds, 2)
        self.assertGreater(final.transferred_bytes, 4096 * self.boot.pages)
        self.assertGreater(final.total_bytes, 4096 * self.boot.pages)
        self.assertGreater(final.pages.peer, self.boot.pages)
        self.assertGreater(final.pages.zero, 0)
        self.assertEqual(0, final.pages.storage)
        self.assertIsNotNone(final.downtime_ms)
        self.assertIsNotNone(final.setup_time_ms)
        self.assertGreater(final.total_time_ms, 0)

    def test_running_guest_goes_on_by_itself(self):
        source, destination = self.started(), self.make('destination')
        self.migrate(source, destination, paused=False).wait(60)
        self.assertEqual('running', destination.run_state())
        self.assert_left(source)
        self.assert_works(destination)

    def test_tcp(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, transport='tcp')
        self.assert_arrives(source, destination, migration)

    def test_state_of_both_sides(self):
        source, destination = self.started(), self.make('destination')
        self.assertFalse(destination.is_alive())
        migration = self.migrate(source, destination, max_bandwidth=MIB)
        self.wait_for_bytes(migration, 64 << 10)
        self.assertEqual('running', source.run_state())
        self.assertEqual('inmigrate', destination.run_state())
        self.assertEqual('active', source.progress().status)
        migration.cancel()
        self.assertEqual('cancelled', source.progress().status)

    def test_there_and_back(self):
        first, second = self.started(), self.make('second')
        self.migrate(first, second, paused=False).wait(60)
        self.assert_works(second)
        first.destroy()
        migration = self.migrate(second, first)
        self.assert_arrives(second, first, migration)

    def test_progress(self):
        source, destination = self.started(), self.make('destination')
        # 8 MiB at 4 MiB/s: there is time to look, and a guest that does
        # not run cannot outrun the link
        source.pause()
        migration = self.migrate(source, destination,
                                 max_bandwidth=4 * MIB)
        seen = list(migration.watch(0.1))
        self.assertEqual('completed', seen[-1].status)
        self.assertEqual(0, seen[-1].remaining_bytes)
        active = [p for p in seen if p.status == 'active']
        self.assertGreater(len(active), 5)
        self.assertTrue(any(p.eta_s for p in active))
        self.assertTrue(any(p.mbps > 0 for p in active))
        sent = [p.transferred_bytes for p in seen]
        self.assertEqual(sorted(sent), sent)
        self.assert_arrives(source, destination, migration)

    def test_cancel_and_retry(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, max_bandwidth=MIB)
        self.wait_for_bytes(migration, 64 << 10)
        self.assertEqual('cancelled', migration.cancel().status)
        self.assertFalse(destination.is_alive())
        self.assertEqual('running', source.run_state())
        self.assert_works(source)
        error = self.assertRaises(errors.MigrationFailed, migration.wait, 1)
        self.assertEqual('cancelled', error.status)
        migration = self.migrate(source, destination)
        self.assert_arrives(source, destination, migration)

    def test_rate_change_in_flight(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, max_bandwidth=MIB)
        before = self.wait_for_bytes(migration, 64 << 10)
        # at this rate, which is less than the guest writes, it would
        # never end
        self.assertGreater(before.remaining_bytes, 4 * MIB)
        migration.set_rate(None)
        final = self.assert_arrives(source, destination, migration)
        self.assertLess(final.total_time_ms, 15000)

    def test_lost_destination(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, max_bandwidth=MIB)
        self.wait_for_bytes(migration, 64 << 10)
        destination.destroy()
        error = self.assertRaises(errors.MigrationFailed,
                                  migration.wait, 60)
        self.assertEqual('failed', error.status)
        self.assert_works(source)
        migration = self.migrate(source, destination)
        self.assert_arrives(source, destination, migration)

    def test_pause_before_switchover(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination,
                                 pause_before_switchover=True)
        held = migration.wait_status(('pre-switchover',), 60)
        self.assertFalse(held.finished)
        self.assertEqual('inmigrate', destination.run_state())
        migration.proceed()
        self.assert_arrives(source, destination, migration)

    def test_cancel_before_switchover(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination,
                                 pause_before_switchover=True)
        migration.wait_status(('pre-switchover',), 60)
        self.assertEqual('cancelled', migration.cancel().status)
        self.assert_works(source)
        migration = self.migrate(source, destination)
        self.assert_arrives(source, destination, migration)

    def test_multifd(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, multifd_channels=2)
        self.assert_arrives(source, destination, migration)

    def test_multifd_zstd(self):
        self._test_compression('zstd')

    def test_multifd_zlib(self):
        self._test_compression('zlib')

    def _test_compression(self, method):
        source, destination = self.started(), self.make('destination')
        try:
            migration = self.migrate(source, destination,
                                     multifd_channels=2,
                                     multifd_compression=method)
        except errors.QmpError as error:
            self.skipTest('this QEMU was built without %s: %s'
                          % (method, error))
        self.assert_arrives(source, destination, migration)

    def test_xbzrle(self):
        source, destination = self.started(), self.make('destination')
        # the second round fills the cache, the third can send deltas
        migration = self.migrate(source, destination, xbzrle=True,
                                 max_bandwidth=4 * MIB,
                                 downtime_limit_ms=1)
        self.eventually(
            lambda: source.qmp('query-migrate').get(
                'xbzrle-cache', {}).get('pages'), 'a delta', 60)
        migration.set_rate(None)
        self.assert_arrives(source, destination, migration)

    def test_auto_converge(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, auto_converge=True,
                                 max_bandwidth=2 * MIB,
                                 downtime_limit_ms=1)
        self.eventually(lambda: migration.progress().throttle_percent,
                        'throttling', 60, 0.1)
        migration.set_rate(None)
        self.assert_arrives(source, destination, migration)

    def test_postcopy(self):
        self._test_postcopy(postcopy_preempt=False)

    def test_postcopy_preempt(self):
        self._test_postcopy(postcopy_preempt=True)

    def _test_postcopy(self, **given):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, postcopy=True,
                                 paused=False, max_bandwidth=MIB,
                                 max_postcopy_bandwidth=2 * MIB, **given)
        self.wait_for_bytes(migration, 64 << 10)
        now = migration.start_postcopy()
        self.assertEqual('postcopy-active', now.status)
        self.assertRaises(errors.InvalidMigrationState, migration.cancel)
        final = migration.wait(60)
        self.assertGreater(final.postcopy_requests, 0)
        self.assertEqual('running', destination.run_state())
        self.assert_works(destination)

    def test_postcopy_of_a_paused_guest(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, postcopy=True,
                                 max_bandwidth=MIB)
        self.wait_for_bytes(migration, 64 << 10)
        migration.start_postcopy()
        self.assert_arrives(source, destination, migration)

    def test_postcopy_recovery(self):
        source, destination = self.started(), self.make('destination')
        migration = self.recovered(source, destination, paused=False)
        migration.wait(60)
        self.assert_left(source)
        self.assert_works(destination)

    def test_postcopy_recovery_of_a_paused_guest(self):
        source, destination = self.started(), self.make('destination')
        migration = self.recovered(source, destination, paused=True)
        self.assert_arrives(source, destination, migration)

    def recovered(self, source, destination, paused):
        """Return a migration after an interrupted post-copy."""
        migration = self.migrate(source, destination, postcopy=True,
                                 paused=paused, max_bandwidth=MIB,
                                 max_postcopy_bandwidth=2 * MIB)
        self.wait_for_bytes(migration, 64 << 10)
        migration.start_postcopy()
        migration.interrupt()
        error = self.assertRaises(errors.MigrationFailed,
                                  migration.wait, 10)
        self.assertEqual('postcopy-paused', error.status)
        self.assertTrue(destination.is_alive())
        migration.recover()
        return migration

    def test_wait_has_a_limit(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, max_bandwidth=MIB)
        self.assertRaises(errors.WaitTimeout, migration.wait, 0.1)
        migration.cancel()

    def test_running_destination_is_refused(self):
        source = self.started()
        self.image = self.boot.write_image(self.dir / 'other.img')
        other = self.started('other')
        self.assertRaises(errors.InvalidMigrationState, self.migrate,
                          source, other)
        self.assert_works(source)
        self.assert_works(other)

    def test_a_source_that_stays_is_no_destination(self):
        source, destination = self.started(), self.make('destination')
        self.migrate(source, destination, paused=False).wait(60)
        if not source.source_stays:
            self.assert_left(source)
            return
        # what is left of the source is a process with a guest's memory
        self.assertRaises(errors.InvalidMigrationState, self.migrate,
                          destination, source)
        self.assertTrue(source.is_alive())
        self.assert_works(destination)

    def wait_for_bytes(self, migration, count):
        """Wait until count bytes went through the link."""
        def reached():
            now = migration.progress()
            return now if now.transferred_bytes >= count else None
        return self.eventually(reached, '%d bytes' % count)


class StockSuite(Suite):
    """A QEMU without dedup says so."""

    def test_dedup_is_not_supported(self):
        guest = self.make('guest')
        guest.start(paused=True)
        with tempfile.TemporaryFile() as file:
            for call in (guest.track_dedup, guest.arm_dedup,
                         guest.disarm_dedup, guest.dedup_statistics,
                         lambda: guest.load_dedup_map(file.fileno())):
                error = self.assertRaises(errors.DedupNotSupported, call)
                self.assertEqual(guest.name, error.name)

    def test_is_not_patched(self):
        guest = self.make('guest')
        guest.start(paused=True)
        self.assertFalse(guest.is_patched())

    def test_no_dedup_in_progress(self):
        source, destination = self.started(), self.make('destination')
        final = self.migrate(source, destination).wait(60)
        self.assertIsNone(final.dedup)


class DedupSuite(Suite):
    """A QEMU with dedup."""

    def test_is_patched(self):
        guest = self.make('guest')
        guest.start(paused=True)
        self.assertTrue(guest.is_patched())

    def test_statistics_of_a_new_guest(self):
        guest = self.make('guest')
        guest.start(paused=True)
        info = guest.dedup_statistics()
        self.assertEqual(
            statistics.DedupStatistics(hints=dataclasses.replace(
                info.hints, pages=0, recorded=0)), info)

    def test_track_records_what_the_guest_reads(self):
        guest = self.make('guest')
        guest.start(paused=True)
        guest.track_dedup()
        guest.cont()
        self.assert_works(guest)
        info = guest.dedup_statistics()
        self.assertTrue(info.tracking)
        self.assertGreaterEqual(info.hints.pages,
                                self.boot.chunks * bootsector.CHUNK // 4096)
        guest.track_dedup(False)
        info = guest.dedup_statistics()
        self.assertFalse(info.tracking)
        self.assertEqual(0, info.hints.pages)

    def test_arm_and_disarm(self):
        guest = self.make('guest')
        guest.start(paused=True)
        guest.arm_dedup()
        self.assertEqual('armed', guest.dedup_statistics().source.state)
        guest.disarm_dedup()
        self.assertNotEqual('armed', guest.dedup_statistics().source.state)

    def test_bad_map_is_refused(self):
        guest = self.make('guest')
        guest.start(paused=True)
        with tempfile.TemporaryFile() as file:
            file.write(b'not a map' * 1000)
            file.seek(0)
            guest.load_dedup_map(file.fileno())
        state = self.eventually(
            lambda: self.map_state(guest) not in ('none', 'loading')
            and self.map_state(guest), 'end of the map')
        self.assertEqual('failed', state)
        self.assertIsNotNone(guest.dedup_statistics().hints.map_error)

    def map_state(self, guest):
        return guest.dedup_statistics().hints.map_state

    def tracked(self):
        """Return a guest that works, with all it read recorded."""
        guest = self.make('source')
        guest.start(paused=True)
        guest.track_dedup()
        guest.cont()
        self.assert_works(guest)
        return guest

    def test_armed_migration_reads_storage(self):
        source, destination = self.tracked(), self.make('destination')
        source.arm_dedup()
        migration = self.migrate(source, destination)
        final = migration.wait(60)
        self.assertGreater(final.dedup.source.record_pages, 0)
        self.assert_arrives(source, destination, migration)
        self.assertIn(final.status, progress.FINAL)

    def test_armed_migration_of_a_paused_guest(self):
        source, destination = self.tracked(), self.make('destination')
        source.arm_dedup(disks=[
            {'device': device} for device in source.disks().values()])
        final = self.assert_paused_arrives(source, destination)
        self.assertGreater(final.pages.storage, 0)

    def test_destination_tells_what_it_did(self):
        source, destination = self.tracked(), self.make('destination')
        source.arm_dedup()
        self.migrate(source, destination).wait(60)
        incoming = destination.dedup_statistics().incoming
        self.assertGreater(incoming.fetched_pages, 0)
        event = destination.events.wait('X_DEDUP_INCOMING_DONE', 0, 10)
        self.assertEqual(incoming, statistics.IncomingStatistics.from_event(
            event.data))
