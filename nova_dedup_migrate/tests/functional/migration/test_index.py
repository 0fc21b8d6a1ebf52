# SPDX-License-Identifier: Apache-2.0
"""The content index: hints for a guest that nobody has watched."""

import os

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.pagecache import mapformat
from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import images
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import spec

PAGES = case.PAGES
DISK = '/machine/peripheral/disk0/virtio-backend'
#: So slow that it does not end within a test.
SLOW = 4 << 20


class IndexCase(case.MigrationCase):

    def booted(self, track=False, **given):
        one = self.rig(**given)
        one.boot(track=track)
        one.read_pages(PAGES)
        return one

    def index(self, one, expected='done', **given):
        """Index the disks; return IndexStatistics when it is over."""
        one.source.index_disks(**given)
        return self.over(one, expected)

    def over(self, one, expected):
        def over():
            found = one.source.dedup_statistics().index
            return None if found.running else found
        found = self.eventually(over, 'the index')
        self.assertEqual(expected, found.state, found)
        return found

    def migrate(self, one, **given):
        one.migrate(**given)
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        return outcome.source


class IndexTest(IndexCase):

    def test_untracked(self):
        one = self.booted()
        found = self.index(one)
        self.assertGreaterEqual(found.found_pages, len(PAGES))
        self.assertLess(found.found_pages, found.pages)
        self.assertEqual(found.bytes, found.done_bytes)
        self.assertLessEqual(found.read_bytes, found.bytes)
        self.assertGreater(found.memory_bytes, 0)
        self.assertGreater(found.ns, 0)
        self.assertIsNone(found.reason)
        self.assertEqual(found.found_pages,
                         one.source.dedup_statistics().hints.pages)
        figures = self.migrate(one)
        self.assertGreaterEqual(figures.storage_pages, len(PAGES))
        self.assertEqual(0, figures.nack_digest)

    def test_without_it(self):
        """Nothing else has made hints."""
        one = self.booted()
        self.assertEqual(0, self.migrate(one).storage_pages)

    def test_own_copy(self):
        """A mirrored disk has other places, and the same offsets."""
        path = self.directory / 'copy.raw'
        one = self.rig(destination_disks=[spec.Disk(path=path)])
        path.write_bytes((self.directory / 'disk0.raw').read_bytes())
        one.boot(track=False)
        one.read_pages(PAGES)
        self.index(one)
        figures = self.migrate(one, copy='own')
        self.assertGreaterEqual(figures.storage_pages, len(PAGES))

    def test_qcow2_with_a_backing_file(self):
        made = images.Images(self.directory, self.binary)
        base, content = made.qcow2('base.qcow2')
        top = made.overlay(base, 'qcow2')
        disk = made.disk((base, 'qcow2'), (top, 'qcow2'))
        one = self.booted(source_disks=[disk], contents=[content])
        one.guest.fill(PAGES[0], 7)
        one.guest.write(PAGES[0], scripted.DATA)
        found = self.index(one, cached=True)
        self.assertGreaterEqual(found.found_pages, len(PAGES))
        figures = self.migrate(one)
        self.assertGreaterEqual(figures.storage_pages, len(PAGES))

    def test_an_iothread(self):
        path = self.directory / 'disk.raw'
        content = scripted.write_disk(path)
        one = self.booted(source_disks=[spec.Disk(path=path, iothread=True)],
                          contents=[content])
        self.assertGreaterEqual(self.index(one).found_pages, len(PAGES))
        self.migrate(one)

    def test_pages_with_the_same_bytes(self):
        one = self.booted()
        for page in PAGES:
            one.guest.read(page, scripted.DATA)
        self.assertGreaterEqual(self.index(one).found_pages, len(PAGES))
        self.assertGreaterEqual(self.migrate(one).storage_pages, len(PAGES))

    def test_the_memory_changes_meanwhile(self):
        """Each page is compared again when its block comes by."""
        one = self.booted()
        one.source.index_disks(rate=SLOW)
        for page in PAGES[16:]:
            one.guest.poke(page, 4095)
        found = self.over(one, 'done')
        self.assertGreaterEqual(found.found_pages, 16)
        self.migrate(one)

    def test_the_disk_changes_afterwards(self):
        """The digest finds what the fingerprint cannot."""
        one = self.changed()
        figures = self.migrate(one)
        self.assertGreaterEqual(figures.nack_digest, len(PAGES[:8]))

    def test_without_the_digest(self):
        one = self.changed(inject='no-verify')
        one.migrate()
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        self.assert_wrong_bytes(one.finish())

    def changed(self, **given):
        one = self.booted(**given)
        self.index(one)
        one.guest.fill(scripted.LAST, 9)
        for number in range(8):
            one.guest.write(scripted.LAST, scripted.DATA + number * 8)
        return one

    def test_pages_change_afterwards(self):
        """The fingerprint finds those that were rewritten."""
        one = self.booted()
        self.index(one)
        for page in PAGES[:8]:
            one.guest.fill(page, 3)
        figures = self.migrate(one)
        self.assertGreaterEqual(figures.stale_hints, 8)
        self.assertEqual(0, figures.nack_digest)

    def test_writes_during_the_scan(self):
        one = self.booted()
        one.source.index_disks(rate=SLOW)
        for number, page in enumerate(PAGES):
            one.guest.poke(page, 17)
            one.guest.write(page, scripted.DATA + number * 8)
            one.guest.read(page, scripted.DATA + 800 + number * 8)
        self.over(one, 'done')
        self.migrate(one)

    def test_zeros_are_not_read(self):
        path = self.directory / 'sparse.raw'
        content = scripted.write_disk(path)
        content.extend(bytes(64 << 20))
        os.truncate(path, len(content))
        one = self.booted(source_disks=[spec.Disk(path=path)],
                          contents=[content])
        one.source.index_disks()
        found = self.over(one, 'done')
        self.assertLess(found.read_bytes, 16 << 20)
        self.assertEqual(len(content), found.bytes)


class OtherHintsTest(IndexCase):
    """Recorded hints win over those found by content or in a list."""

    def places(self, one):
        """Return the DiskHints after a sample of all."""
        (found,) = one.source.sample_hints(4096)
        return found

    def test_index_fills_gaps(self):
        one = self.booted(track=True)
        before = one.source.dedup_statistics().hints.pages
        found = self.index(one)
        self.assertEqual(
            before + found.found_pages,
            one.source.dedup_statistics().hints.pages)
        self.assertLess(found.found_pages, len(PAGES))
        self.migrate(one)

    def load(self, one, shift):
        """Load a list of PAGES that is wrong unless shift is 0."""
        fd = os.memfd_create('map')
        try:
            os.write(fd, mapformat.PageCacheMap((DISK,), (mapformat.Extent(
                PAGES[0] * 4096, scripted.DATA * 512 + shift, len(PAGES),
                0),)).encode())
            os.lseek(fd, 0, os.SEEK_SET)
            one.source.load_dedup_map(fd)
        finally:
            os.close(fd)

        def over():
            hints = one.source.dedup_statistics().hints
            return hints if hints.map_state == 'loaded' else None
        return self.eventually(over, 'the map')

    def test_list_over_recorded_hints(self):
        one = self.booted(track=True)
        hints = self.load(one, 4096)
        self.assertEqual((0, len(PAGES), 0), (
            hints.map_pages, hints.map_kept, hints.map_skipped))
        # They keep their fingerprints: no record for a page that changed
        for page in PAGES[:8]:
            one.guest.fill(page, 3)
        figures = self.migrate(one)
        self.assertEqual(0, figures.nack_digest)
        self.assertGreaterEqual(figures.stale_hints, 8)
        self.assertEqual(len(PAGES) - 8, figures.storage_pages)

    def test_list_over_a_list(self):
        """The newer one counts."""
        one = self.booted()
        self.assertEqual(len(PAGES), self.load(one, 4096).map_pages)
        self.assertEqual(len(PAGES), self.load(one, 0).map_pages)
        self.assertEqual(len(PAGES), self.migrate(one).storage_pages)

    def test_list_before_the_index(self):
        one = self.booted()
        self.load(one, 0)
        self.assertLess(self.index(one).found_pages, len(PAGES))
        self.migrate(one)


class EndTest(IndexCase):

    def test_cancelled(self):
        one = self.booted()
        self.reading(one)
        self.assertRaises(errors.QmpError, one.source.index_disks)
        one.source.cancel_index()
        found = self.over(one, 'cancelled')
        self.assertEqual('cancelled', found.reason)
        self.assertLess(found.done_bytes, found.bytes)
        one.source.cancel_index()
        self.index(one)
        self.migrate(one)

    def test_a_migration_begins(self):
        one = self.booted()
        one.source.index_disks(rate=1 << 20)
        self.migrate(one)
        found = self.over(one, 'cancelled')
        self.assertEqual('a migration began', found.reason)

    def test_not_during_a_migration(self):
        one = self.booted()
        one.migrate()
        one.active()
        self.assertRaises(errors.QmpError, one.source.index_disks)
        self.assert_right(one.finish())

    def test_memory_cap(self):
        """It is refused before anything is allocated."""
        one = self.booted()
        error = self.assertRaises(errors.QmpError, one.source.index_disks,
                                  memory=1 << 16)
        self.assertIn('allowed', str(error))
        self.assertIsNone(one.source.dedup_statistics().index)
        self.migrate(one)

    def test_the_page_cache_of_the_host(self):
        path = self.directory / 'cached.raw'
        content = scripted.write_disk(path)
        one = self.booted(
            source_disks=[spec.Disk(path=path, cache='writeback')],
            contents=[content])
        error = self.assertRaises(errors.QmpError, one.source.index_disks)
        self.assertIn('page cache', str(error))
        self.index(one, cached=True)

    def test_unknown_disk(self):
        one = self.booted()
        self.assertRaises(errors.QmpError, one.source.index_disks,
                          ['floppy'])

    def reading(self, one, *devices):
        """Begin to read disks, so slowly that it goes on for seconds."""
        one.source.index_disks(devices or None, rate=1 << 20)
        self.eventually(
            lambda: one.source.dedup_statistics().index.state == 'disks',
            'the disks')

    def test_disk_goes_while_it_is_read(self):
        """The index holds nothing that keeps a node from being deleted."""
        one = self.rig(drives=2, device='virtio-scsi')
        one.boot(track=False)
        one.read_pages(PAGES)
        self.reading(one, 'disk1', 'disk0')
        mark = one.source.events.mark()
        one.source.qmp('device_del', id='disk1')
        one.source.events.wait('DEVICE_DELETED', mark, 30)
        one.source.qmp('blockdev-del', **{'node-name': 'disk1-format'})
        found = self.over(one, 'done')
        self.assertLess(found.done_bytes, found.bytes)
        self.assertGreaterEqual(found.found_pages, len(PAGES))

    def test_snapshot_while_it_is_read(self):
        one = self.booted()
        self.reading(one)
        path = images.Images(self.directory, self.binary).overlay(
            self.directory / 'disk0.raw', 'raw')
        one.source.qmp('blockdev-add', driver='qcow2', backing=None, file={
            'driver': 'file', 'filename': str(path)},
            **{'node-name': 'newest'})
        one.source.qmp('blockdev-snapshot', node='disk0-format',
                       overlay='newest')
        found = self.over(one, 'done')
        self.assertEqual(found.bytes, found.done_bytes)
        self.assertGreaterEqual(found.found_pages, len(PAGES))

    def test_while_disks_are_copied(self):
        one = self.booted()
        self.reading(one)
        size = (self.directory / 'disk0.raw').stat().st_size
        one.source.qmp('blockdev-add', driver='null-co', size=size,
                       **{'node-name': 'target'})
        one.source.qmp('blockdev-mirror', device='disk0-format',
                       target='target', sync='full', **{'job-id': 'copy'})
        found = self.over(one, 'done')
        self.assertGreaterEqual(found.found_pages, len(PAGES))
        one.source.qmp('block-job-cancel', device='copy', force=True)
