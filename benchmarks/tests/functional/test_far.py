# SPDX-License-Identifier: Apache-2.0
"""A destination far away: an answer that is under way is not late."""

from benchmarks import relay
from nova_dedup_migrate.tests.functional.migration import case

PAGES = case.PAGES


class FarTest(case.MigrationCase):

    def far(self, milliseconds, **given):
        """Migrate so far with a link that has nothing to do meanwhile."""
        class Destination(relay.RelayedGuest):
            delay = milliseconds / 1000

        one = self.begun(kind=Destination, migration={
            'resend': True, 'max_bandwidth': None}, **given)
        one.recorded(len(PAGES))
        one.until(lambda: not one.figures().outstanding, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        source = outcome.source
        self.assertEqual(1, source.round_trips)
        self.assertGreaterEqual(source.round_trip_us, milliseconds * 1000)
        self.assertGreaterEqual(source.negotiation_us, source.round_trip_us)
        return source

    def check(self, source):
        self.assertEqual(0, source.resent_pages)
        self.assertGreaterEqual(source.storage_pages, len(PAGES))

    def test_60_ms(self):
        self.check(self.far(60))

    def test_150_ms(self):
        self.check(self.far(150))

    def test_600_ms(self):
        self.check(self.far(600))

    def test_150_ms_broken(self):
        """With the round trip left out of account, pages are resent."""
        source = self.far(150, source_inject='no-round-trip')
        self.assertGreater(source.resent_pages, 0)
