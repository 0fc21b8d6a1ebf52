# SPDX-License-Identifier: Apache-2.0
"""A page is read from storage while newer content for it arrives.

The delays hold a fetch up in each state of its page: before the read,
with the bytes read but not claimed yet (pending), while they are being
copied.
"""

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import scripted

#: Few, as delays after the read are per page.
PAGES = range(scripted.FIRST, scripted.FIRST + 2)
DELAYS = {'read': 'fetch-delay-us=2500000',
          'pending': 'pending-delay-us=1500000',
          'copying': 'copy-delay-us=1200000'}


class LateFetchTest(case.MigrationCase):

    def scenario(self, delay, change, broken=False, rounds=2, **migration):
        inject = DELAYS[delay] + (',no-supersede' if broken else '')
        one = self.begun(PAGES, migration, inject=inject)
        one.until(lambda: one.arrived().record_pages == len(PAGES),
                  'records')
        # without hints nothing is put off: the next round sends them
        one.source.track_dedup(False)
        for number in range(rounds):
            for page in PAGES:
                change(one.guest, page, number)
            one.rounds()
        one.until(lambda: one.arrived().backlog == 0, 'end of the fetch')
        outcome = one.finish()
        if delay != 'copying' and not broken:
            self.assertEqual(len(PAGES), outcome.incoming.superseded_pages)
        self.deltas = one.source.qmp('query-migrate').get(
            'xbzrle-cache', {}).get('pages', 0)
        return outcome

    @staticmethod
    def poke(guest, page, number):
        guest.poke(page, 100 + number)

    @staticmethod
    def zero(guest, page, number):
        guest.fill(page, 0)

    def pair(self, *scenario, **given):
        self.assert_right(self.scenario(*scenario, **given))

    def broken(self, *scenario, **given):
        self.assert_wrong(self.scenario(*scenario, broken=True, **given))

    def test_page_while_reading(self):
        self.pair('read', self.poke)

    def test_page_while_reading_broken(self):
        self.broken('read', self.poke)

    def test_page_while_pending(self):
        self.pair('pending', self.poke)

    def test_page_while_pending_broken(self):
        self.broken('pending', self.poke)

    def test_page_while_copying(self):
        self.pair('copying', self.poke)

    def test_page_while_copying_broken(self):
        self.broken('copying', self.poke)

    def test_zero_while_pending(self):
        self.pair('pending', self.zero, rounds=1)

    def test_zero_while_pending_broken(self):
        self.broken('pending', self.zero, rounds=1)

    def test_zero_while_copying(self):
        self.pair('copying', self.zero, rounds=1)

    def test_delta_while_reading(self):
        self.pair('read', self.poke, xbzrle=True)
        self.assertGreater(self.deltas, 0)

    def test_delta_while_reading_broken(self):
        self.broken('read', self.poke, xbzrle=True)

    def test_delta_while_copying(self):
        self.pair('copying', self.poke, xbzrle=True)

    def test_multifd_while_pending(self):
        self.pair('pending', self.poke, multifd_channels=2)

    def test_multifd_while_pending_broken(self):
        self.broken('pending', self.poke, multifd_channels=2)

    def test_multifd_while_copying(self):
        self.pair('copying', self.poke, multifd_channels=2)

    def test_multifd_zero_while_pending(self):
        self.pair('pending', self.zero, rounds=1, multifd_channels=2)

    def test_multifd_zero_while_copying(self):
        self.pair('copying', self.zero, rounds=1, multifd_channels=2)
