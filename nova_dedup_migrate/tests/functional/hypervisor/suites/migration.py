# SPDX-License-Identifier: Apache-2.0
"""Migration as such: its course, its end, giving up."""

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests.functional.hypervisor.suites import suite


class MigrationSuite(suite.Suite):
    """There, back, refused, lost and cancelled."""

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

    def test_state_of_both_sides(self):
        source, destination = self.started(), self.make('destination')
        self.assertFalse(destination.is_alive())
        migration = self.migrate(source, destination, max_bandwidth=suite.MIB)
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
        # 8 MiB at 2 MiB/s: there is time to look, also where a look takes
        # long, and a guest that does not run cannot outrun the link
        source.pause()
        migration = self.migrate(source, destination,
                                 max_bandwidth=2 * suite.MIB)
        seen = list(migration.watch(0.1))
        self.assertEqual('completed', seen[-1].status)
        self.assertEqual(0, seen[-1].remaining_bytes)
        active = [p for p in seen if p.status == 'active']
        self.assertGreater(len(active), 2)
        self.assertTrue(any(p.eta_s for p in active))
        self.assertTrue(any(p.mbps > 0 for p in active))
        sent = [p.transferred_bytes for p in seen]
        self.assertEqual(sorted(sent), sent)
        self.assert_arrives(source, destination, migration)

    def test_cancel_and_retry(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, max_bandwidth=suite.MIB)
        self.wait_for_bytes(migration, 64 << 10)
        self.assertEqual('cancelled', migration.cancel().status)
        self.assertFalse(destination.is_alive())
        self.assertEqual('running', source.run_state())
        self.assert_works(source)
        error = self.assertRaises(errors.MigrationFailed, migration.wait, 1)
        self.assertEqual('cancelled', error.status)
        migration = self.migrate(source, destination)
        self.assert_arrives(source, destination, migration)

    def test_lost_destination(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, max_bandwidth=suite.MIB)
        self.wait_for_bytes(migration, 64 << 10)
        destination.destroy()
        error = self.assertRaises(errors.MigrationFailed,
                                  migration.wait, 60)
        self.assertEqual('failed', error.status)
        self.assert_works(source)
        migration = self.migrate(source, destination)
        self.assert_arrives(source, destination, migration)

    def test_wait_has_a_limit(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, max_bandwidth=suite.MIB)
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
