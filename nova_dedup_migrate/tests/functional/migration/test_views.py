# SPDX-License-Identifier: Apache-2.0
"""Storage that the destination reads late, or as it was.

The destination sees the source's disk through a file system of the test,
which holds reads: the bytes are of the moment the read began.
"""

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import fuse_view
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import spec

PAGES = case.PAGES


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

    def check_disk(self, one, guest):
        """What the guest reads now is what it wrote."""
        for number, page in enumerate(PAGES):
            guest.read(page, scripted.DATA + number * 8)
        one.source.pause()
        image = one.source.save_memory(self.temporary_dir())
        return one.model.wrong_pages(image)

    def stale(self, inject=''):
        """The source writes to what is being read."""
        one = self.seen(inject, cache='writeback')
        for number, page in enumerate(PAGES):
            one.guest.fill(page, number + 1)
            one.guest.write(page, scripted.DATA + number * 8)
        outcome = one.finish()
        self.assert_right(outcome)
        # the end of the reads that began before
        held = self.view.held
        self.view.let_go()
        self.eventually(lambda: self.view.held < held, 'late reads')
        arrived = one.move()
        self.eventually(
            lambda: not one.source.dedup_statistics().incoming.backlog,
            'the reads')
        return self.check_disk(one, arrived)

    def test_reads_leave_nothing_in_the_page_cache(self):
        self.assertEqual([], self.stale())

    def test_reads_leave_nothing_in_the_page_cache_broken(self):
        """Through the guest's node: it gets old bytes of its disk."""
        self.assertNotEqual([], self.stale('no-own-target'))

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
