# SPDX-License-Identifier: Apache-2.0
"""Migration of which a part follows the guest."""

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests.functional.hypervisor.suites import suite


class PostcopySuite(suite.Suite):
    """Post-copy, and its recovery."""

    def test_postcopy(self):
        self._test_postcopy(postcopy_preempt=False)

    def test_postcopy_preempt(self):
        self._test_postcopy(postcopy_preempt=True)

    def _test_postcopy(self, **given):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, postcopy=True,
                                 paused=False, max_bandwidth=suite.MIB,
                                 max_postcopy_bandwidth=2 * suite.MIB, **given)
        self.wait_for_bytes(migration, 64 << 10)
        now = migration.start_postcopy()
        # The guest reads all of its memory, and so requests it: a slow test
        # may see the end of that.
        if now.status not in ('device', 'completed'):
            self.assertEqual('postcopy-active', now.status)
            self.assertRaises(errors.InvalidMigrationState, migration.cancel)
        final = migration.wait(60)
        self.assertGreater(final.postcopy_requests, 0)
        self.assertEqual('running', destination.run_state())
        self.assert_works(destination)

    def test_postcopy_of_a_paused_guest(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, postcopy=True,
                                 max_bandwidth=suite.MIB)
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
                                 paused=paused, max_bandwidth=suite.MIB,
                                 max_postcopy_bandwidth=2 * suite.MIB)
        self.wait_for_bytes(migration, 64 << 10)
        migration.start_postcopy()
        migration.interrupt()
        error = self.assertRaises(errors.MigrationFailed,
                                  migration.wait, 10)
        self.assertEqual('postcopy-paused', error.status)
        self.assertTrue(destination.is_alive())
        migration.recover()
        return migration
