# SPDX-License-Identifier: Apache-2.0
"""Pages in compressed batches, alone and beside everything else."""

import pathlib

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import gate
from nova_dedup_migrate.tests.functional.migration import rig
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import options

PAGES = case.PAGES
HUNG = 'fetch-delay-us=100000000'
#: For each page of a batch.
SLOW_PLACING = 'inflate-delay-us=2000'
SLOW_COMPRESSION = 'compress-delay-us=20000'
#: RAM_SAVE_FLAG_DEDUP and the type BATCH
_BATCH = (0x100).to_bytes(8) + (8).to_bytes(2)
_USERFAULT = pathlib.Path('/proc/sys/vm/unprivileged_userfaultfd')


class CompressionCase(case.MigrationCase):
    """Pages of which a quarter is noise, and a hum that is small."""

    def rig(self, **given):
        given.setdefault('noise', scripted.PAGE // 4)
        return super().rig(**given)

    def begun(self, pages=PAGES, migration=None, track=False, **given):
        one = self.rig(**given)
        one.boot(track=track)
        one.guest.hum(words=4)
        one.read_pages(pages)
        one.migrate(**{'compression': {}, 'records': track,
                       **(migration or {})})
        one.active()
        return one

    def assert_plain(self, source):
        """Pages went as they are.

        On a busy machine the link waits for threads, which then are not
        given noise to try.
        """
        self.assertGreater(source.incompressible_pages
                           + source.uncompressed_pages, 0, source)

    def compressed(self, one, pages):
        """Wait until so many pages more have gone in batches."""
        first = one.figures().compressed_pages
        one.until(lambda: one.figures().compressed_pages >= first + pages,
                  'batches')


class CompressTest(CompressionCase):

    def test_plain_pages(self):
        one = self.begun()
        one.rounds()
        for page in PAGES:
            one.guest.poke(page, 100)
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        source, incoming = outcome.source, outcome.incoming
        self.assertEqual(0, source.record_pages)
        self.assertGreater(source.compressed_pages, 0)
        self.assertLess(source.compression_ratio, 0.8)
        self.assertEqual(source.compressed_pages, incoming.compressed_pages)
        self.assertEqual(source.compressed_bytes, incoming.compressed_bytes)
        self.assertGreater(source.compression_ns, 0)
        self.assertGreater(incoming.compression_ns, 0)
        one.move()

    def test_noise_goes_as_it_is(self):
        one = self.begun(noise=scripted.PAGE)
        one.guest.hum()
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assert_plain(outcome.source)

    def test_no_limit(self):
        """The link is faster than anything."""
        one = self.begun(migration={'max_bandwidth': None})
        one.rounds(10)
        for page in PAGES:
            one.guest.poke(page, 100)
        self.assert_right(one.finish())

    def test_levels_and_threads(self):
        one = self.begun(migration={'compression': {'threads': 3,
                                                    'level': 9}})
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(9, outcome.source.compression_level)

    def test_destination_that_cannot(self):
        one = self.begun(inject='no-hello')
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, outcome.source.compressed_pages)

    def test_and_deltas(self):
        """Xbzrle is off then: its base would be what nobody has."""
        one = self.begun(migration={'xbzrle': True})
        for number in range(3):
            one.rounds()
            for page in PAGES:
                one.guest.poke(page, number)
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, one.source.qmp('query-migrate')
                         ['xbzrle-cache']['pages'])

    def test_tls(self):
        for name in 'source', 'destination':
            directory = self.directory / name
            directory.mkdir()
            (directory / 'keys.psk').write_text('qemu:' + '5a' * 16 + '\n')
        one = self.begun(migration={'tls': options.TlsCredentials(
            self.directory / 'source', self.directory / 'destination',
            'psk')})
        one.rounds()
        for page in PAGES:
            one.guest.poke(page, 100)
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertGreater(outcome.source.compressed_pages, 0)


class OrderTest(CompressionCase):
    """What comes later for a page must stay."""

    def scenario(self, **given):
        """A batch that takes long, and zeros for one of its pages.

        The guest's clock alone makes small batches all the time.
        """
        one = self.begun(**given)
        one.guest.hum(0)
        one.rounds()
        return one

    def one_batch(self, one):
        one.migration.set_rate(1000)
        for page in PAGES:
            one.guest.fill(page, 1)
        one.migration.set_rate(rig.RATE)

    def zero(self, one):
        sent = one.figures().zero_pages
        one.guest.fill(PAGES[-1], 0)
        one.until(lambda: one.figures().zero_pages > sent, 'a zero page')

    def test_slow_placing(self):
        one = self.scenario(inject=SLOW_PLACING)
        before = one.arrived().compression_ns
        sent = one.figures().peer_pages
        self.one_batch(one)
        one.until(lambda: one.figures().peer_pages >= sent + len(PAGES),
                  'batches')
        self.zero(one)
        one.until(lambda: one.arrived().compression_ns > before, 'placing')
        self.assert_right(one.finish())

    def test_slow_compression(self):
        one = self.scenario(source_inject=SLOW_COMPRESSION)
        self.one_batch(one)
        one.rounds()
        self.zero(one)
        one.rounds()
        self.assert_right(one.finish())


class BesideRecordsTest(CompressionCase):

    def test_both(self):
        """Pages that storage holds are left out, the others compressed."""
        one = self.begun(track=True)
        one.fetched(len(PAGES))
        one.source.track_dedup(False)
        for page in PAGES[::2]:
            one.guest.poke(page, 100)
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.storage_pages)
        self.assertGreater(outcome.source.compressed_pages, 0)

    def batch_over_fetch(self, inject=''):
        """A batch arrives while storage still reads the page."""
        one = self.begun(track=True,
                         inject='fetch-delay-us=700000' + inject)
        one.recorded(len(PAGES))
        one.source.track_dedup(False)
        for page in PAGES:
            one.guest.poke(page, 100)
        one.rounds()
        one.until(lambda: one.arrived().reads, 'reads')
        return one.finish()

    def test_batch_over_fetch(self):
        outcome = self.batch_over_fetch()
        self.assert_right(outcome)
        self.assertGreater(outcome.incoming.superseded_pages, 0)

    def test_batch_over_fetch_broken(self):
        self.assert_wrong(self.batch_over_fetch(',no-supersede'))

    def test_record_after_batch(self):
        one = self.begun(inject=SLOW_PLACING)
        one.rounds(1)
        one.source.track_dedup()
        one.read_pages(PAGES, sector=2048)
        one.rounds()
        self.assert_right(one.finish())

    def test_backlog_at_the_switch_over(self):
        """What was not fetched goes in batches in the last round."""
        one = self.begun(track=True, inject=HUNG)
        one.recorded(len(PAGES))
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.final_pages)


class MultifdTest(CompressionCase):

    def test_noise_on_the_channels(self):
        """Pages change between batch and channel from round to round."""
        one = self.begun(migration={'multifd_channels': 2},
                         inject=SLOW_PLACING, track=True, noise=scripted.PAGE)
        one.fetched(len(PAGES))
        one.source.track_dedup(False)
        for byte in 1, 2:
            for page in PAGES:
                one.guest.fill(page, byte)
            one.rounds()
            one.read_pages(PAGES, sector=2048)
            one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertGreater(outcome.source.compressed_pages, 0)
        self.assert_plain(outcome.source)

    def test_that_compresses(self):
        """Its own compression is used, and none on the main channel."""
        one = self.begun(migration={'multifd_channels': 2,
                                    'multifd_compression': 'zstd'})
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, outcome.source.compressed_pages)

    def zeros_on_the_channels(self, inject=''):
        """Multifd does not write a zero page it has never received."""
        one = self.begun(migration={'multifd_channels': 2}, inject=inject)
        one.rounds()
        for page in PAGES:
            one.guest.fill(page, 0)
        one.rounds()
        return one.finish()

    def test_zeros_on_the_channels(self):
        self.assert_right(self.zeros_on_the_channels())

    def test_zeros_on_the_channels_broken(self):
        self.assert_wrong(self.zeros_on_the_channels('no-recv-bit'))


class PostcopyTest(CompressionCase):

    def setUp(self):
        if not _USERFAULT.exists():
            self.skipTest('the kernel has no userfaultfd')
        super().setUp()

    def scenario(self, **given):
        one = self.begun(migration={'postcopy': True,
                                    'max_postcopy_bandwidth': 1 << 20},
                         **given)
        one.rounds(1)
        for page in PAGES:
            one.guest.poke(page, 100)
        one.migration.start_postcopy()
        one.source.qmp('migrate-set-parameters',
                       **{'max-postcopy-bandwidth': 0})
        outcome = one.outcome()
        self.assert_right(outcome)
        if 'source_inject' not in given:
            self.assertGreater(outcome.source.compressed_pages, 0)
        one.move()

    def test_slow_placing(self):
        self.scenario(inject=SLOW_PLACING)

    def test_slow_compression(self):
        self.scenario(source_inject=SLOW_COMPRESSION)

    def test_beside_records(self):
        self.scenario(track=True, inject=HUNG)


class CancelTest(CompressionCase):

    def cancelled(self, one):
        one.migration.cancel()
        one.check_home()
        one.new_destination()
        one.migrate(compression={}, records=False)
        one.active()
        one.rounds()
        self.assert_right(one.finish())

    def test_while_compressing(self):
        one = self.begun(source_inject=SLOW_COMPRESSION)
        self.cancelled(one)

    def test_while_placing(self):
        one = self.begun(inject=SLOW_PLACING)
        self.compressed(one, 1)
        self.cancelled(one)

    def test_there_and_back(self):
        one = self.begun()
        one.rounds()
        self.assert_right(one.finish())
        one.move()
        one.migrate(compression={}, records=False)
        one.active()
        one.rounds()
        self.assert_right(one.finish())

    def test_destination_lost(self):
        one = self.begun()
        self.compressed(one, 1)
        one.destination.destroy()
        outcome = one.outcome()
        self.assertIsNotNone(outcome.failed)
        self.assertEqual('running', outcome.home)


class DamagedGuest(gate.GatedGuest):
    """A destination to which the first batch comes damaged."""

    #: Changes bytes behind the header of the element; at least 16.
    damage = staticmethod(lambda data: data)

    def _copy_main(self, reader, writer):
        begun = b''
        while data := reader.recv(1 << 16):
            begun += data
            at = begun.find(_BATCH)
            if self.held.is_set() or at < 0:
                keep = len(_BATCH) - 1 if not self.held.is_set() else 0
                cut = max(0, len(begun) - keep)
            elif len(begun) < at + 64:
                cut = at
            else:
                self.held.set()
                begun = begun[:at + 14] + self.damage(begun[at + 14:])
                cut = len(begun)
            writer.sendall(begun[:cut])
            begun = begun[cut:]


class HostileSourceTest(CompressionCase):
    """The load ends, and the guest goes on where it was."""

    def scenario(self, damage):
        class Guest(DamagedGuest):
            pass

        Guest.damage = staticmethod(damage)
        one = self.begun(kind=Guest)
        outcome = one.outcome()
        self.assertTrue(one.destination.held.is_set())
        self.assertIsNotNone(outcome.failed)
        self.assertEqual('running', outcome.home)

    def test_page(self):
        self.scenario(lambda data: data[:8] + b'\xff' * 9 + data[17:])

    def test_frame(self):
        def damage(data):
            at = data.index(b'\x28\xb5\x2f\xfd')
            return data[:at + 4] + b'\xff' * 8 + data[at + 12:]
        self.scenario(damage)
