# SPDX-License-Identifier: Apache-2.0
"""Content on multifd channels and records on the main one."""

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import gate
from nova_dedup_migrate.tests.functional.migration import rig
from nova_dedup_migrate.tests.functional.migration import scripted

PAGES = case.PAGES
MULTIFD = {'multifd_channels': 2}


class FetchedBecomesZeroTest(case.MigrationCase):
    """Multifd does not write a zero page it has never received."""

    def scenario(self, before_end=True, inject='', **migration):
        one = self.begun(migration={**MULTIFD, **migration}, inject=inject)
        one.fetched(len(PAGES))
        if before_end:
            # without hints nothing is put off: the next round sends them
            one.source.track_dedup(False)
        for page in PAGES:
            one.guest.fill(page, 0)
        if before_end:
            one.rounds()
        outcome = one.finish()
        self.assertEqual(len(PAGES), outcome.source.storage_pages)
        return outcome

    def test_plain(self):
        self.assert_right(self.scenario())

    def test_zlib(self):
        self.assert_right(self.scenario(multifd_compression='zlib'))

    def test_zstd(self):
        self.assert_right(self.scenario(multifd_compression='zstd'))

    def test_at_the_switch_over(self):
        self.assert_right(self.scenario(before_end=False))

    def test_legacy_zero_pages(self):
        self.assert_right(self.scenario(
            parameters={'zero-page-detection': 'legacy'}))

    def test_broken(self):
        self.assert_wrong(self.scenario(inject='no-recv-bit'))


class RecordsFirstTest(case.MigrationCase):
    """Content must not overtake the record of an earlier moment.

    The records go first.  Then the guest changes their pages while the
    scan, held up, has not come to them yet.  The migration completes and
    sends them on a channel that is ahead of the main one.
    """

    def scenario(self, source_inject='', inject='', **migration):
        one = self.rig(kind=gate.GatedGuest, inject=inject,
                       source_inject=source_inject)
        one.boot(track=False)
        # more content than the sockets' buffers hold, below the records
        one.read_pages(case.ALL, sector=2048)
        one.source.track_dedup()
        one.read_pages(scripted.HIGH)
        one.migrate(multifd_channels=1, **migration)
        link = one.destination
        link.alone = True
        self.assertTrue(link.held.wait(30), 'no records')
        rig.wait_quiet(lambda: link.side_bytes)
        for page in scripted.HIGH:
            one.guest.poke(page, 100)
        one.let_go()
        link.side_opened.set()
        rig.wait_quiet(lambda: link.side_bytes, 1.0)
        link.opened.set()
        self.eventually(lambda: one.arrived().record_pages,
                        'arrival of the records')
        self.eventually(lambda: not one.arrived().backlog, 'the fetch')
        link.rest_opened.set()
        return one.outcome()

    def test_plain(self):
        self.assert_right(self.scenario())

    def test_zstd(self):
        self.assert_right(self.scenario(multifd_compression='zstd'))

    def test_not_synchronised(self):
        """The epoch alone says that they are late."""
        self.assert_right(self.scenario('no-flush'))

    def test_broken(self):
        # Hints would be sent before the content, with another round.
        self.assert_wrong_bytes(self.scenario('no-flush',
                                              'no-epoch,no-hints'))
