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

    The records go first.  Then the guest changes their pages, and before
    the scan has come round once the migration completes and sends them
    on channels that are ahead of the main one.
    """

    def scenario(self, source_inject='', **migration):
        # Above all others, so that the scan comes to them last
        pages = range(0x68, 0x70)
        others = range(scripted.FIRST, 0x68)
        one = self.rig(kind=gate.GatedGuest, source_inject=source_inject)
        one.boot()
        one.read_pages(others, sector=2048)
        one.source.track_dedup(False)       # these are content
        one.source.track_dedup()
        one.read_pages(pages)
        one.migrate(max_bandwidth=64 << 10, **{**MULTIFD, **migration})
        self.assertTrue(one.destination.held.wait(30), 'no records')
        for page in pages:
            one.guest.poke(page, 100)
        one.let_go()
        rig.wait_quiet(lambda: one.destination.side_bytes)
        one.destination.opened.set()
        return one.outcome()

    def test_plain(self):
        self.assert_right(self.scenario())

    def test_zstd(self):
        self.assert_right(self.scenario(multifd_compression='zstd'))

    def test_broken(self):
        self.assert_wrong(self.scenario(source_inject='no-flush'))
