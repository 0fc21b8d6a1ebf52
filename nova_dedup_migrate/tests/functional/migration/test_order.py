# SPDX-License-Identifier: Apache-2.0
"""A record that arrives after newer content of its page.

Ordinarily a page is sent again only after the scan has come to the end of
memory, where multifd's channels are synchronised.  Not if a RAM block comes
or goes meanwhile: the scan then begins anew, and what it sends may be ahead
of older records on the main channel.
"""

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import gate
from nova_dedup_migrate.tests.functional.migration import rig
from nova_dedup_migrate.tests.functional.migration import scripted

#: Behind all that the guest fills, so that the scan can be held up before.
PAGE = scripted.HIGH[0]
#: Bytes per second at which a pass over zero pages takes seconds.
SLOW = 8 << 10
#: With this limit the bitmap is synchronised in each iteration ...
_SYNC_MS = 1_999_000
#: ... but the switch-over waits for a higher one.
_HOLD = 'hold-below-ms=2000000'


class NewScanTest(case.MigrationCase):

    def scenario(self, inject=''):
        one = self.rig(kind=gate.GatedGuest, inject=inject,
                       source_inject=_HOLD)
        link = one.destination
        link.alone = True
        one.boot(track=False)
        one.read_pages(case.ALL, sector=2048)
        # no place has to be looked up for what is read from now on
        one.migrate(multifd_channels=1, copy='own')
        one.active()
        # the scan waits for the channel, before it has come to the page
        rig.wait_quiet(lambda: link.side_bytes)
        one.source.track_dedup()
        one.guest.read(PAGE, scripted.DATA)
        one.migration.set_rate(SLOW)
        one.source.qmp('migrate-set-parameters',
                       **{'downtime-limit': _SYNC_MS})
        link.side_opened.set()
        self.assertTrue(link.held.wait(30), 'no record')
        # in the same pass: new content, which a new scan comes to at once
        one.source.track_dedup(False)
        one.guest.poke(PAGE, 100)
        rounds = one.migration.progress().rounds
        one.until(lambda: one.migration.progress().rounds > rounds + 1,
                  'a synchronisation')
        one.source.qmp('object-add', id='another', size=1 << 20,
                       **{'qom-type': 'memory-backend-ram'})
        one.migration.set_rate(rig.RATE)
        one.until(lambda: one.figures().superseded_pages, 'content')
        one.let_go()
        rig.wait_quiet(lambda: link.side_bytes, 1.0)
        link.opened.set()
        self.eventually(lambda: one.arrived().record_pages,
                        'arrival of the record')
        self.eventually(lambda: not one.arrived().backlog, 'the fetch')
        link.rest_opened.set()
        outcome = one.outcome()
        self.assertGreater(outcome.source.record_pages, 0)
        return outcome

    def test_record_is_late(self):
        outcome = self.scenario()
        self.assertIsNone(outcome.failed)
        # The pages that hum may differ: with TCG, QEMU loses writes if the
        # bitmap is synchronised again before a dirty page was sent, with
        # or without records (cpu_physical_memory_sync_dirty_bitmap resets
        # the TLB only if a page became dirty that was not yet).
        self.assertEqual((), outcome.wrong)

    def test_record_is_late_broken(self):
        self.assert_wrong_bytes(self.scenario('no-epoch'))
