# SPDX-License-Identifier: Apache-2.0
"""A Linux guest that works and verifies: devices, several disks.

Ten megabytes of files in its page cache, written to and verified while it
is migrated; then all memory is compared, and the guest verifies its
memory and its files.
"""

from guests.tests.functional import linux
from testkit import memory
from testkit import options


class LinuxTest(linux.LinuxCase):

    def test_virtio_scsi_and_back(self):
        source = self.boot(['virtio-scsi'], 'qcow2-backed')
        there = self.migrate(source)
        self.talk.command('start mixed rate=2000 readrate=20000')
        self.migrate(there)

    def test_ide_not_aligned(self):
        self.migrate(self.boot(['ide'], layout='partition'))

    def test_two_disks_with_iothreads(self):
        source = self.boot(['virtio-blk', 'virtio-blk'], 'qcow2',
                           iothread=True)
        self.migrate(source, multifd_channels=2)

    def test_three_kinds_of_disks(self):
        source = self.boot(['virtio-blk', 'virtio-scsi', 'ide'])
        self.migrate(source, xbzrle=True)

    def test_page_cache_writer_with_late_fetches(self):
        source = self.boot(
            ['virtio-blk'], 'qcow2', mode='pagecache-writer',
            inject='fetch-delay-us=100000,pending-delay-us=100,'
                   'copy-delay-us=50,answer-delay-us=20000')
        self.migrate(source, 0.1)

    def test_page_cache_writer_with_late_fetches_multifd(self):
        source = self.boot(
            ['virtio-blk'], mode='pagecache-writer',
            inject='fetch-delay-us=100000,pending-delay-us=100,'
                   'copy-delay-us=50,answer-delay-us=20000')
        self.migrate(source, 0.1, multifd_channels=2,
                     multifd_compression='zstd')

    def test_pages_that_are_freed_become_zero(self):
        """Multifd once more, with the kernel's own zero pages."""
        source = self.boot(['virtio-blk'], mode='idle',
                           append=' init_on_free=1')
        source.qmp('migrate-set-parameters',
                   **{'max-bandwidth': 4 << 20})
        what = self.guest(self.spec, 'destination')
        source.arm_dedup()
        migration = source.migrate(what, options.MigrationOptions(
            paused=True, multifd_channels=2, max_bandwidth=8 << 20))
        self.eventually(lambda: source.dedup_statistics().source
                        .storage_pages > (linux.MIB << 7), 'fetched pages')
        self.talk.command('drop')
        migration.set_rate(None)
        migration.wait(120)
        here = source.save_memory(self.directory / 'source')
        there = what.save_memory(self.directory / 'destination')
        self.assertEqual(0, memory.compare(here, there).differing)
        self.talk = self.connect(what)
        what.cont()
        self.verify()
