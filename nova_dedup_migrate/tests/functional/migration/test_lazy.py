# SPDX-License-Identifier: Apache-2.0
"""Post-copy goes on to read from storage while the guest runs."""

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import fuse_view
from nova_dedup_migrate.tests.functional.migration import scripted
from nova_dedup_migrate.tests.functional.migration import test_postcopy
from testkit import spec

PAGES = case.PAGES
#: Bytes a second of the background transfer, so that it takes seconds
SLOW = 1 << 16


class LazyTest(case.MigrationCase):

    preempt = False
    timeout = 300

    def setUp(self):
        test_postcopy.require_userfault(self)
        super().setUp()

    def outstanding(self, pages=PAGES, inject='', source_inject='',
                    view=False, lazy=True, step=8, **migration):
        """Have records sent for the pages, and nothing answered.

        :param view: have reads hang, which is a FUSE file system's matter
        """
        one = self.rig(inject=inject, source_inject=source_inject)
        if view:
            self.backing = one.spec.disks[0].path
            self.view = fuse_view.make(self, self.backing)
            one.new_destination(disks=(spec.Disk(path=self.view.path),))
            # a process cannot end while a read of it hangs
            self.addCleanup(self.view.let_go)
        one.boot()
        one.read_pages(pages, step=step)
        one.destination.start_incoming()
        if view:
            self.view.hold()
        one.migrate(postcopy=True, postcopy_preempt=self.preempt,
                    max_postcopy_bandwidth=SLOW, lazy=lazy, **migration)
        one.active()
        one.recorded(len(pages))
        return one

    def switch(self, one):
        one.migration.start_postcopy()
        one.until(lambda: one.migration.progress().status
                  == 'postcopy-active', 'post-copy')

    def hurry(self, one):
        """Take the limit from the link."""
        one.source.qmp('migrate-set-parameters',
                       **{'max-postcopy-bandwidth': 0})

    def arrived(self, one):
        """Let it complete, with the guest stopped; all memory is right."""
        outcome = one.outcome()
        self.assert_right(outcome)
        one.move()
        return outcome

    def run_there(self, one):
        """Let the guest run at the destination; return its Remote."""
        remote = one.connect(one.destination)
        one.destination.cont()
        return remote

    def wrong_there(self, one):
        """Let it complete; return pages that are not what they should be.

        The guest has run: what it did not write is as at the source.
        """
        one.migration.wait(60)
        one.destination.pause()
        there = one.destination.save_memory(self.temporary_dir())
        wrong = one.model.wrong_pages(there)
        there.remove()
        return wrong

    def test_storage_delivers(self):
        one = self.outstanding(view=True)
        self.switch(one)
        self.view.let_go()
        outcome = self.arrived(one)
        self.assertGreater(outcome.incoming.lazy_pages, 0)

    def test_storage_hangs(self):
        """No read ever returns: all comes from the source."""
        one = self.outstanding(view=True)
        self.switch(one)
        outcome = self.arrived(one)
        self.assertEqual(0, outcome.incoming.lazy_pages)
        self.assertEqual(0, outcome.incoming.fetched_pages)

    def test_storage_hangs_and_guest_runs(self):
        one = self.outstanding(view=True)
        self.switch(one)
        # it uses no disk here
        remote = self.run_there(one)
        for page in PAGES:
            remote.poke(page, 100)
        self.hurry(one)
        self.assertEqual([], self.wrong_there(one))

    def test_storage_is_slow(self):
        one = self.outstanding(inject='fetch-delay-us=300000', step=256)
        self.switch(one)
        remote = self.run_there(one)
        for number, page in enumerate(PAGES):
            if number % 2:
                remote.poke(page, number)
        self.assertEqual([], self.wrong_there(one))

    def test_written_to_all_the_time(self):
        one = self.outstanding(case.ALL, step=8)
        self.switch(one)
        remote = self.run_there(one)
        for offset in range(3):
            for page in case.ALL:
                remote.poke(page, offset)
        self.assertEqual([], self.wrong_there(one))

    def test_written_to_before(self):
        """A record whose page was written to is void."""
        one = self.outstanding(view=True)
        for page in PAGES:
            one.guest.poke(page, 100)
        self.switch(one)
        self.view.let_go()
        self.arrived(one)

    def other_bytes(self, inject=''):
        """Storage changes between the record and the read."""
        one = self.outstanding(view=True, inject=inject)
        with self.backing.open('r+b') as file:
            file.seek(scripted.DATA * scripted.SECTOR)
            file.write(bytes([0x5a]) * (len(PAGES) * scripted.PAGE))
        self.switch(one)
        self.view.let_go()
        return one.outcome()

    def test_other_bytes(self):
        outcome = self.other_bytes()
        self.assert_right(outcome)
        self.assertEqual(0, outcome.incoming.lazy_pages)

    def test_other_bytes_broken(self):
        self.assert_wrong_bytes(self.other_bytes('no-verify'))

    def late(self, *broken):
        """The guest writes to pages; then reads of them end."""
        one = self.outstanding(view=True, inject=','.join(broken),
                               source_inject='hold-postcopy-ms=10000')
        self.switch(one)
        remote = self.run_there(one)
        one.until(lambda: one.arrived().record_pages > len(PAGES), 'records')
        for page in PAGES:
            remote.poke(page, 100)
        self.view.let_go()
        self.eventually(lambda: not one.arrived().backlog, 'the reads')
        self.assertEqual('postcopy-active', one.migration.progress().status)
        return self.wrong_there(one)

    def test_read_ends_after_a_write(self):
        self.assertEqual([], self.late())

    def test_read_ends_after_a_write_half_broken(self):
        """What is in place is not placed again, wanted or not."""
        self.assertEqual([], self.late('no-supersede'))

    def test_read_ends_after_a_write_broken(self):
        self.assertNotEqual([], self.late('no-supersede',
                                          'no-atomic-place'))

    def test_answers_from_before(self):
        """Placed before, discarded, answered after: it does not count."""
        one = self.outstanding(inject='answer-delay-us=1500000')
        one.fetched(len(PAGES))
        self.switch(one)
        self.hurry(one)
        self.arrived(one)

    def test_not_agreed(self):
        one = self.outstanding(view=True, lazy=False)
        self.switch(one)
        self.view.let_go()
        self.hurry(one)
        outcome = self.arrived(one)
        self.assertEqual(0, outcome.incoming.lazy_pages)
        self.assertEqual(len(PAGES), outcome.source.final_pages)

    def test_cancelled_before(self):
        one = self.outstanding(inject='fetch-delay-us=100000000')
        self.assertEqual('cancelled', one.migration.cancel().status)
        one.check_home()

    def test_recovery(self):
        """What was outstanding comes from the source then."""
        one = self.outstanding(view=True)
        self.switch(one)
        one.migration.interrupt()
        self.view.let_go()
        one.migration.recover()
        self.hurry(one)
        outcome = self.arrived(one)
        self.assertLessEqual(outcome.incoming.lazy_pages, len(PAGES))

    def test_interrupted_while_it_reads(self):
        one = self.outstanding(inject='fetch-delay-us=300000', step=256)
        self.switch(one)
        one.until(lambda: one.arrived().lazy_pages > 0, 'a page')
        one.migration.interrupt()
        one.migration.recover()
        self.hurry(one)
        self.arrived(one)

    def test_there_and_back(self):
        """Pages placed lazily have hints there, and the guest is well."""
        one = self.outstanding()
        self.switch(one)
        outcome = self.arrived(one)
        self.assertGreater(outcome.incoming.fetched_pages, 0)
        one.guest.hum()
        one.migrate()
        one.fetched(len(PAGES))
        self.assert_right(one.finish())


class LazyPreemptTest(LazyTest):
    """Requested pages have a channel, and a thread at the source."""

    preempt = True
