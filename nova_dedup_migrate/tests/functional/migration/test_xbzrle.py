# SPDX-License-Identifier: Apache-2.0
"""Deltas need a base that the destination has too."""

from nova_dedup_migrate.tests.functional.migration import case

PAGES = case.PAGES


class DeltaTest(case.MigrationCase):

    def scenario(self, source_inject=''):
        """Content, then a record, then a delta."""
        one = self.begun(source_inject=source_inject,
                         migration={'xbzrle': True})
        one.fetched(len(PAGES))
        one.rounds()                        # QEMU caches from the second on
        one.source.track_dedup(False)
        for page in PAGES:                  # content: what deltas start from
            one.guest.poke(page, 100, 1)
        one.rounds()
        one.source.track_dedup()
        for number, page in enumerate(PAGES):   # a record
            one.guest.poke(page, 200, 2)
            one.guest.poke(page, 0, number)
            one.guest.write(page, 2048 + number * 8)
        # The scan may have met some before they had been written: dirty
        # them once more, as they are.
        one.rounds()
        fetched = one.arrived().fetched_pages
        for number, page in enumerate(PAGES):
            one.guest.poke(page, 0, number)
        one.fetched(fetched + len(PAGES))
        one.source.track_dedup(False)
        for page in PAGES:                  # back where the base was
            before = one.model.disks[0][64 * 512 + (page - PAGES[0]) * 4096
                                        + 200]
            one.guest.poke(page, 200, before)
            one.guest.poke(page, 300, 3)
        one.rounds()
        outcome = one.finish()
        self.assertGreater(one.source.qmp('query-migrate')['xbzrle-cache']
                           ['pages'], 0)
        return outcome

    def test_content_record_delta(self):
        self.assert_right(self.scenario())

    def test_content_record_delta_broken(self):
        self.assert_wrong(self.scenario(source_inject='no-xbzrle-drop'))
