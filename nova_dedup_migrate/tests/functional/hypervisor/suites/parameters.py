# SPDX-License-Identifier: Apache-2.0
"""Migration with each option but post-copy."""

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests.functional.hypervisor.suites import suite


class ParametersSuite(suite.Suite):
    """What QEMU can be told about a migration."""

    def test_tcp(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, transport='tcp')
        self.assert_arrives(source, destination, migration)

    def test_rate_change_in_flight(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, max_bandwidth=suite.MIB)
        before = self.wait_for_bytes(migration, 64 << 10)
        # at this rate, which is less than the guest writes, it would
        # never end
        self.assertGreater(before.remaining_bytes, 4 * suite.MIB)
        migration.set_rate(None)
        self.assert_arrives(source, destination, migration)

    def test_downtime_allowed_in_flight(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, max_bandwidth=suite.MIB)
        self.wait_for_bytes(migration, 64 << 10)
        # likewise, but now all that is left may go in the pause
        source.allow_downtime(60_000)
        self.assert_arrives(source, destination, migration)

    def test_bandwidth_of_a_migration_under_way(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, max_bandwidth=suite.MIB)
        self.wait_for_bytes(migration, 64 << 10)
        # At the first rate it would take minutes.
        source.limit_bandwidth(1 << 30)
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
                                 max_bandwidth=4 * suite.MIB,
                                 downtime_limit_ms=1)
        self.eventually(
            lambda: source.qmp('query-migrate').get(
                'xbzrle-cache', {}).get('pages'), 'a delta', 60)
        migration.set_rate(None)
        self.assert_arrives(source, destination, migration)

    def test_auto_converge(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, auto_converge=True,
                                 max_bandwidth=2 * suite.MIB,
                                 downtime_limit_ms=1)
        self.eventually(lambda: migration.progress().throttle_percent,
                        'throttling', 60, 0.1)
        migration.set_rate(None)
        self.assert_arrives(source, destination, migration)
