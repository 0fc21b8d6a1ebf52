# SPDX-License-Identifier: Apache-2.0
"""Answers that arrive when the page is no longer what they are about."""

import time

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import scripted

PAGES = range(scripted.FIRST, scripted.FIRST + 8)
OTHER = scripted.FIRST + 32
#: The second records' bytes are lost before they are read.
LATE = 'answer-delay-us=8000000,fetch-delay-us=1000000'


class StaleAnswerTest(case.MigrationCase):

    def second_record(self, one, lost):
        """Make a second record for each page before the first is answered.

        :param lost: its bytes do not stay on the disk
        """
        for number, page in enumerate(PAGES):
            sector = scripted.DATA + number * 8
            self.record_again(one, page, sector)
            if lost:
                one.guest.fill(OTHER, number + 1)
                one.guest.write(OTHER, sector)
        self.assertEqual(0, one.figures().storage_pages,
                         'the answers were too early')

    def record_again(self, one, page, sector):
        """Write to a page, and it to the disk, until a record tells so.

        The scan may come to the page between the two and, when the link
        idles, send content.
        """
        for value in range(100, 120):
            before = one.figures()
            # all of it, so that the fingerprint notices
            one.guest.fill(page, value)
            one.guest.write(page, sector)

            def recorded(before=before):
                return one.figures().record_pages > before.record_pages

            def came_between(before=before):
                return one.figures().stale_hints > before.stale_hints

            one.until(lambda r=recorded, c=came_between: r() or c(),
                      'another record')
            give_up = time.monotonic() + 0.3
            while not recorded() and time.monotonic() < give_up:
                time.sleep(0.01)
            if recorded():
                return
        self.fail('page %#x goes as content only' % page)

    def scenario(self, lost, source_inject=''):
        one = self.begun(PAGES, inject=LATE, source_inject=source_inject)
        one.recorded(len(PAGES))
        one.fetched(len(PAGES))
        self.second_record(one, lost)
        if source_inject:
            one.until(lambda: one.figures().storage_pages, 'trust')
        else:
            one.until(lambda: one.figures().outstanding == 0, 'answers')
        return one.finish()

    def test_acknowledged_then_recorded_again(self):
        outcome = self.scenario(lost=False)
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.storage_pages)
        self.assertEqual(len(PAGES), outcome.source.superseded_pages)

    def test_acknowledged_then_lost(self):
        """The late acknowledgement must not count for the second."""
        outcome = self.scenario(lost=True)
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.nack_digest)

    def test_acknowledged_then_lost_broken(self):
        self.assert_wrong(self.scenario(lost=True,
                                        source_inject='trust-acks'))

    def test_refused_then_recorded_again(self):
        """The late refusal must not drop the second record's hint."""
        one = self.rig(inject=LATE)
        one.boot()
        one.read_pages(PAGES)
        # the disk holds other bytes, the hints do not know
        one.guest.fill(OTHER, 7)
        one.source.track_dedup()
        for number, _ in enumerate(PAGES):
            one.guest.write(OTHER, scripted.DATA + number * 8)
        one.migrate()
        one.until(lambda: one.arrived().nack_digest >= len(PAGES), 'NACKs')
        self.second_record(one, lost=False)
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        # All eight were read again and so was the one that took the place
        self.assertGreaterEqual(outcome.source.storage_pages, len(PAGES))

    def test_never_answered(self):
        one = self.begun(inject='no-answers')
        one.fetched(len(case.PAGES))
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(case.PAGES), outcome.source.final_pages)

    def test_never_answered_and_resent(self):
        one = self.begun(inject='no-answers', migration={'resend': True})
        one.fetched(len(case.PAGES))
        one.until(lambda: one.figures().outstanding == 0, 'resending')
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(case.PAGES), outcome.source.resent_pages)
