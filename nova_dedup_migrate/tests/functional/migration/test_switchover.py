# SPDX-License-Identifier: Apache-2.0
"""What is outstanding when the guest is to go."""

from nova_dedup_migrate.tests.functional.migration import case

PAGES = case.PAGES
#: Longer than any of these tests
HUNG = 'fetch-delay-us=100000000'


class SwitchoverTest(case.MigrationCase):

    def scenario(self, source_inject='', inject=HUNG, **migration):
        one = self.begun(inject=inject, source_inject=source_inject,
                         migration=migration)
        one.recorded(len(PAGES))
        outcome = one.finish()
        if outcome.failed is None and not source_inject:
            self.assertEqual(len(PAGES), outcome.source.final_pages)
        return outcome

    def test_storage_hangs(self):
        self.assert_right(self.scenario())

    def test_storage_hangs_broken(self):
        self.assert_wrong(self.scenario(source_inject='no-redirty'))

    def test_what_is_missing_is_noticed(self):
        """The destination refuses, the guest goes on at the source."""
        outcome = self.scenario(source_inject='no-redirty')
        self.assertIn('neither fetched nor sent', outcome.failed)
        self.assertEqual('running', outcome.home)

    def no_room(self):
        """Four records are outstanding, the other pages wait for room."""
        one = self.begun(inject=HUNG, source_inject='window=4')
        one.recorded(4)
        one.rounds()
        self.assertEqual(4, one.figures().outstanding)
        return one

    def test_pages_wait_for_room(self):
        outcome = self.no_room().finish()
        self.assert_right(outcome)
        self.assertEqual(4, outcome.source.final_pages)

    def test_pages_wait_for_room_and_it_is_disarmed(self):
        one = self.no_room()
        one.source.disarm_dedup()
        one.until(lambda: one.figures().outstanding == 0, 'draining')
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, outcome.source.final_pages)

    def test_storage_hangs_multifd(self):
        self.assert_right(self.scenario(multifd_channels=2))

    def test_storage_hangs_xbzrle(self):
        self.assert_right(self.scenario(xbzrle=True))

    def test_pause_before_switchover(self):
        one = self.begun(inject=HUNG, migration={
            'pause_before_switchover': True})
        one.recorded(len(PAGES))
        one.let_go()
        one.migration.wait_status(('pre-switchover',), 30)
        self.assertEqual('finish-migrate', one.source.run_state())
        one.migration.proceed()
        self.assert_right(one.outcome())

    def test_fetches_go_on_before_the_switchover(self):
        """Held for as long as storage needs: all is fetched."""
        one = self.begun(inject='fetch-delay-us=2000000', migration={
            'pause_before_switchover': True})
        one.recorded(len(PAGES))
        one.let_go()
        one.migration.wait_status(('pre-switchover',), 30)
        self.eventually(lambda: one.arrived().fetched_pages == len(PAGES),
                        'the fetch')
        one.migration.proceed()
        self.assert_right(one.outcome())

    def test_copying_at_the_switchover(self):
        """The destination waits for one page, not for storage."""
        one = self.begun(inject='copy-delay-us=300000')
        one.recorded(len(PAGES))
        one.fetched(1)
        self.assert_right(one.finish())

    def test_nothing_is_fetched_after_it(self):
        """A read that ends when the guest runs must not touch it."""
        one = self.begun(inject='fetch-delay-us=3000000')
        one.recorded(len(PAGES))
        self.assert_right(one.finish())
        arrived = one.move()
        for page in PAGES:
            arrived.fill(page, 9)
        self.eventually(
            lambda: one.source.dedup_statistics().incoming.backlog == 0,
            'the reads')
        one.source.pause()
        image = one.source.save_memory(self.directory)
        self.assertEqual([], one.model.wrong_pages(image))
