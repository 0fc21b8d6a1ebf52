# SPDX-License-Identifier: Apache-2.0
"""Hints go along with the guest, also those of pages sent in full."""

import random

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import gate
from nova_dedup_migrate.tests.functional.migration import rig
from nova_dedup_migrate.tests.functional.migration import scripted
from nova_dedup_migrate.tests.functional.migration import test_postcopy

PAGES = case.PAGES
OTHER = PAGES[-1] + 1
HUNG = 'fetch-delay-us=100000000'


class HintsTest(case.MigrationCase):

    timeout = 300

    def full(self, change=None, **given):
        """Migrate with all pages in full, since storage hangs.

        :param change: called while the records are outstanding
        :returns: Rig, Outcome
        """
        given.setdefault('inject', HUNG)
        one = self.begun(**given)
        one.recorded(len(PAGES))
        if change is not None:
            change(one)
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, outcome.source.storage_pages)
        return one, outcome

    def again(self, one, change=None, **migration):
        """Migrate to a new host, where storage is read."""
        one.move()
        if change is not None:
            change(one)
        one.new_destination(env=rig.environment())
        one.migrate(**migration)
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        return outcome

    def there_and_back_and_on(self, **migration):
        one, outcome = self.full(migration=migration)
        self.assertEqual(len(PAGES), outcome.source.final_pages)
        self.assertEqual(len(PAGES), outcome.source.hint_pages)
        self.assertEqual(len(PAGES), outcome.incoming.hint_pages)
        self.assertIsNone(outcome.incoming.hint_error)
        for _ in range(2):
            outcome = self.again(one, **migration)
            self.assertEqual(len(PAGES), outcome.source.record_pages)
            self.assertEqual(len(PAGES), outcome.source.storage_pages)
            # the destination has them from the records
            self.assertEqual(0, outcome.source.hint_pages)

    def test_there_and_back_and_on(self):
        self.there_and_back_and_on()

    def test_multifd(self):
        self.there_and_back_and_on(multifd_channels=2)

    def test_postcopy(self):
        """They are sent before it begins."""
        test_postcopy.require_userfault(self)
        one = self.begun(inject=HUNG, migration={
            'postcopy': True, 'max_postcopy_bandwidth': 1 << 20,
            'lazy': False})
        one.recorded(len(PAGES))
        one.migration.start_postcopy()
        one.source.qmp('migrate-set-parameters',
                       **{'max-postcopy-bandwidth': 0})
        outcome = one.outcome()
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.hint_pages)
        self.assertEqual(len(PAGES), self.again(one).source.storage_pages)

    def test_older_destination(self):
        """It sends no such element, and finds no hints on the way back."""
        one, outcome = self.full(inject=HUNG + ',no-hints')
        self.assertEqual(0, outcome.source.hint_pages)
        self.assertEqual(0, outcome.source.hint_bytes)
        outcome = self.again(one)
        self.assertEqual(0, outcome.source.record_pages)

    def hints_only(self, one):
        """Let it complete, without a record; then they are of use."""
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, outcome.source.record_pages)
        self.assertEqual(len(PAGES), outcome.source.hint_pages)
        self.assertEqual(len(PAGES), self.again(one).source.storage_pages)

    def test_no_records(self):
        """A migration that only compresses keeps the hints."""
        one = self.begun(migration={'records': False,
                                    'compression': {'threads': 1}})
        one.rounds()
        self.hints_only(one)

    def test_written_back_after_it_was_sent(self):
        """The page stays clean; only its hint is new."""
        one = self.rig()
        one.boot()
        for page in PAGES:
            one.guest.fill(page, page)
        one.migrate()
        one.active()
        one.rounds()
        for number, page in enumerate(PAGES):
            one.guest.write(page, scripted.DATA + number * 8)
        one.rounds()
        self.hints_only(one)

    def test_two_disks(self):
        one = self.rig(drives=2, inject=HUNG)
        one.boot()
        one.read_pages(PAGES[::2])
        one.read_pages(PAGES[1::2], drive=1)
        one.migrate()
        one.active()
        one.recorded(len(PAGES))
        self.assert_right(one.finish())
        self.assertEqual(len(PAGES), self.again(one).source.storage_pages)

    # Hints that do not hold any more

    def overwrite(self, one, pages):
        """Have the disk hold other bytes where pages were read from."""
        one.guest.fill(OTHER, 0x77)
        for page in pages:
            one.guest.write(OTHER, scripted.DATA + (page - PAGES[0]) * 8)

    def test_stale(self):
        """Pages and blocks are written to once the hints have arrived."""
        def change(one):
            # the fingerprint is of the words at 0, 1352, 2712 and 4088
            for page in PAGES[:4]:
                one.guest.poke(page)
            for page in PAGES[4:8]:
                one.guest.poke(page, 200)
            self.overwrite(one, PAGES[8:12])
        one, _ = self.full()
        figures = self.again(one, change).source
        self.assertGreaterEqual(figures.stale_hints, 4)
        self.assertEqual(8, figures.nack_digest)
        # and one of OTHER, which was written to the disk last
        self.assertEqual(len(PAGES) - 12 + 1, figures.storage_pages)

    def test_stale_in_flight(self):
        """Blocks are written to while the migration goes on."""
        one, _ = self.full(lambda one: self.overwrite(one, PAGES[8:16]))
        figures = self.again(one).source
        self.assertEqual(8, figures.nack_digest)
        self.assertEqual(len(PAGES) - 8 + 1, figures.storage_pages)

    def test_stale_broken(self):
        """Without the digest the guest gets what is there now."""
        one, _ = self.full(lambda one: self.overwrite(one, PAGES[8:16]))
        one.move()
        one.new_destination(env=rig.environment('no-verify'))
        one.migrate()
        one.active()
        one.fetched(len(PAGES))
        self.assert_wrong_bytes(one.finish())


class TamperingGuest(gate.GatedGuest):
    """A destination with somebody on the link who rewrites the hints.

    :param payload: called with the payload of each element of hints,
        returns one of the same length
    :ivar rewritten: elements
    """

    #: RAM_SAVE_FLAG_DEDUP and the type HINTS
    mark = (0x100).to_bytes(8) + (6).to_bytes(2)

    def __init__(self, *args, payload):
        super().__init__(*args)
        self.payload = payload
        self.rewritten = 0

    def _copy_main(self, reader, writer):
        kept = b''
        while data := reader.recv(1 << 16):
            kept += data
            at = kept.find(self.mark)
            if at < 0:
                at = next((at for at in range(
                    max(0, len(kept) + 1 - len(self.mark)), len(kept) + 1)
                    if self.mark.startswith(kept[at:])))
                writer.sendall(kept[:at])
                kept = kept[at:]
                continue
            begin = at + len(self.mark) + 4
            end = begin + int.from_bytes(kept[begin - 4:begin])
            if len(kept) < max(begin, end):
                continue
            writer.sendall(kept[:begin] + self.payload(kept[begin:end]))
            kept = kept[end:]
            self.rewritten += 1
            writer.sendall(kept)
            kept = b''


class TamperedTest(case.MigrationCase):

    timeout = 300

    def scenario(self, payload, error=True):
        one = self.begun(inject=HUNG, kind=lambda *args: TamperingGuest(
            *args, payload=payload))
        one.recorded(len(PAGES))
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(1, one.destination.rewritten)
        if error:
            self.assertIn('malformed', outcome.incoming.hint_error)
            self.assertEqual(0, outcome.incoming.hint_pages)
        one.move()
        return one

    def again(self, one, inject=''):
        one.new_destination(env=rig.environment(inject))
        one.migrate()
        one.active()
        if inject:
            one.fetched(len(PAGES))
        else:
            one.until(lambda: one.figures().outstanding == 0, 'answers')
        return one.finish()

    def test_malformed(self):
        """The guest arrives, without hints."""
        outcome = self.again(self.scenario(lambda old: b'\xff' * len(old)))
        self.assert_right(outcome)
        self.assertEqual(0, outcome.source.record_pages)

    def test_random(self):
        """They are malformed, or just wrong."""
        for seed in range(3):
            chance = random.Random(seed)
            one = self.scenario(lambda old, chance=chance: old[:5] +
                                chance.randbytes(len(old) - 5), error=False)
            self.assert_right(self.again(one))

    def shifted(self, old):
        """Each page is said to be where the next one was read from."""
        # a run of pages in a new context: 2 bytes, block, disk, first page;
        # then the first sector, as zigzag and varint
        sector = 2 * scripted.DATA
        wanted = bytes((sector & 0x7f | 0x80, sector >> 7))
        self.assertEqual((PAGES[0], wanted), (old[4], old[5:7]))
        sector += 2 * 8
        return (old[:5] + bytes((sector & 0x7f | 0x80, sector >> 7))
                + old[7:])

    def test_wrong(self):
        """Well-formed lies cost a read each."""
        outcome = self.again(self.scenario(self.shifted, error=False))
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.nack_digest)
        self.assertEqual(0, outcome.source.storage_pages)

    def test_wrong_broken(self):
        one = self.scenario(self.shifted, error=False)
        self.assert_wrong_bytes(self.again(one, 'no-verify'))
