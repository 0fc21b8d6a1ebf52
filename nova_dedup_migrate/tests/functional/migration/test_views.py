# SPDX-License-Identifier: Apache-2.0
"""Storage that hangs, and what reads of it leave on the host.

The destination sees the source's disk through a file system of the test,
which can hold reads.
"""

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import fuse_view
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import spec

PAGES = case.PAGES
#: A sector that nobody reads ahead of time.
FAR = 4096


class ViewsTest(case.MigrationCase):

    def seen(self, inject='', migration=None, **disk):
        """Begin to migrate with all reads of the destination held."""
        one = self.rig(inject=inject)
        backing = one.spec.disks[0].path
        self.view = fuse_view.make(self, backing)
        one.new_destination(disks=(spec.Disk(path=self.view.path, **disk),))
        # a process cannot end while a read of it hangs
        self.addCleanup(self.view.let_go)
        one.boot()
        one.read_pages(PAGES)
        one.destination.start_incoming()
        self.view.hold()
        one.migrate(**(migration or {}))
        one.active()
        self.eventually(lambda: self.view.held, 'a read')
        one.recorded(len(PAGES))
        return one

    def cached(self, inject=''):
        """Fetch all; return what that left in the host's page cache."""
        one = self.rig(inject=inject)
        view = fuse_view.make(self, one.spec.disks[0].path)
        one.new_destination(disks=(spec.Disk(path=view.path,
                                             cache='writeback'),))
        one.boot()
        one.read_pages(PAGES, sector=FAR)
        one.migrate()
        one.fetched(len(PAGES))
        # what is there at the switch-over is stale after it
        found = fuse_view.cached_pages(
            view.path, FAR * scripted.SECTOR, len(PAGES) * scripted.PAGE)
        self.assert_right(one.finish())
        return found

    def test_reads_leave_nothing_in_the_page_cache(self):
        self.assertEqual(0, self.cached())

    def test_reads_leave_nothing_in_the_page_cache_broken(self):
        """Through the guest's node, opened without cache.direct."""
        self.assertEqual(len(PAGES), self.cached('no-own-target'))

    def hung(self, inject=''):
        """Hand over while a read hangs; the disk has an IOThread."""
        one = self.seen(inject, iothread=True)
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.final_pages)
        return one

    def test_read_hangs_through_the_hand_over(self):
        one = self.hung()
        arrived = one.move()
        for number, page in enumerate(PAGES):
            arrived.fill(page, number)
        self.assertEqual('running', one.source.run_state())
        # and through the next migration
        one.new_destination(disks=(spec.Disk(
            path=self.directory / 'disk0.raw'),))
        one.migrate()
        one.active()
        outcome = one.finish()
        self.assert_right(outcome)
        self.view.let_go()

    def test_read_hangs_and_it_is_cancelled(self):
        one = self.seen(iothread=True)
        one.source.qmp('migrate_cancel')
        self.eventually(lambda: one.source.qmp('query-migrate')['status']
                        == 'cancelled', 'the end')
        one.check_home()

    def test_read_hangs_and_the_guest_is_stopped(self):
        one = self.hung()
        one.move()
        one.source.pause()
        self.assertEqual('paused', one.source.run_state())
        one.source.cont()
        self.view.let_go()
