# SPDX-License-Identifier: Apache-2.0
"""A QEMU with dedup."""

import dataclasses
import tempfile

import nbd

from nova_dedup_migrate.hypervisor import disk_export
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.tests.functional.hypervisor.suites import suite
from testkit import bootsector


class DedupSuite(suite.Suite):
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

    def test_sampled_hints(self):
        """Of the disk that arm_dedup calls by the same name."""
        guest = self.tracked()
        (found,) = guest.sample_hints(4096)
        self.assertEqual(list(guest.disks().values()), [found.device])
        self.assertEqual(guest.dedup_statistics().hints.pages, found.pages)
        # QEMU does not wait for a disk that is busy with other things.
        self.eventually(lambda: guest.sample_hints(4096)[0].valid,
                        'a valid hint')

    def test_sampled_hints_of_a_guest_without(self):
        guest = self.make('guest')
        guest.start(paused=True)
        self.assertEqual((), guest.sample_hints())

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
        # How many it fetches before the source sends them depends on who
        # gets the processors.
        self.assertGreater(incoming.record_pages, 0)
        event = destination.events.wait('X_DEDUP_INCOMING_DONE', 0, 10)
        self.assertEqual(incoming, statistics.IncomingStatistics.from_event(
            event.data))

    def test_watched_disk(self):
        """Watched, read through its export, armed and dropped."""
        guest = self.make('guest')
        guest.start(paused=True)
        (device,) = guest.disks().values()
        watch = guest.watch_disk(device)
        self.assertEqual((watch,), guest.disk_watches())
        self.assertEqual(watch.size, watch.dirty)
        guest.clear_disk(watch.token, 0, watch.size)
        self.assertEqual(bytes(watch.bitmap_bytes),
                         guest.dirty_granules(watch))
        with guest.exported_disk(watch.node_name) as path:
            handle = nbd.NBD()
            handle.set_export_name(disk_export.NAME)
            handle.connect_unix(path)
            self.assertEqual(self.image.read_bytes(),
                             bytes(handle.pread(watch.size, 0)))
            handle.shutdown()
        proven = (1 << watch.granules) - 1
        armed = guest.arm_disk(
            watch.token, proven.to_bytes(watch.bitmap_bytes, 'little'), 0,
            bytes(watching.CANARY))
        self.assertEqual((watching.ARMED, watch.granularity),
                         (armed.state, armed.dirty))
        recorded = guest.watch_disk(device, recorder=watching.REPLICA)
        self.assertEqual(watching.REPLICA, recorded.recorder)
        self.assertCountEqual((armed, recorded), guest.disk_watches())
        # takes the place of the other
        claimed = guest.claim_disk(recorded.token)
        self.assertEqual((claimed,), guest.disk_watches())
        guest.drop_disk(claimed.token)
        self.assertEqual((), guest.disk_watches())
