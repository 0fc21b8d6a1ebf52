# SPDX-License-Identifier: Apache-2.0
"""Pages that are written to again wait for the next round, and are not lost.

The pages that hum are written to all the time, so they wait in almost every
round.
"""

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import scripted
from nova_dedup_migrate.tests.functional.migration import test_postcopy
from testkit import qemus

PAGES = case.PAGES
#: Puts pages off in the last round, too.
_LOST = 'defer-last'


class RedirtiedCase(case.MigrationCase):

    def deferred(self, one, pages=scripted.HUM_PAGES):
        """Wait until so many pages more have waited."""
        first = one.figures().deferred_pages
        one.until(lambda: one.figures().deferred_pages >= first + pages,
                  'deferred pages')

    def begun(self, migration=None, **given):
        return super().begun(
            migration={'defer': True, **(migration or {})}, **given)

    def scenario(self, migration=None, **given):
        """Pages that wait; and some that change once, or never."""
        one = self.begun(migration=migration, **given)
        self.deferred(one)
        for page in PAGES:
            one.guest.poke(page, 100)
        self.deferred(one)
        for page in PAGES[::2]:
            one.guest.poke(page, 200)
        for page in PAGES[::4]:             # QEMU itself writes to memory
            one.guest.read(page, scripted.DATA)
        return one.finish()

    def check(self, outcome):
        self.assert_right(outcome)
        source = outcome.source
        self.assertGreater(source.deferred_pages, source.deferred_sent_pages)
        self.assertGreater(source.deferred_sent_pages, 0)
        self.assertGreaterEqual(source.deferral_checks,
                                source.deferred_pages)


class RedirtiedTest(RedirtiedCase):

    def test_records(self):
        outcome = self.scenario()
        self.check(outcome)
        self.assertGreater(outcome.source.record_pages, 0)

    def test_records_outstanding(self):
        """Pages wait for which a record of older content is under way."""
        one = self.begun(inject='fetch-delay-us=300000')
        one.recorded(len(PAGES))
        for _ in range(20):
            for page in PAGES:
                one.guest.poke(page, 100)
        self.deferred(one)
        self.check(one.finish())

    def test_broken(self):
        self.assert_wrong(self.scenario(source_inject=_LOST))

    def test_without_records(self):
        self.check(self.scenario({'records': False}))

    def test_without_records_broken(self):
        self.assert_wrong(self.scenario({'records': False},
                                        source_inject=_LOST))

    def test_stock_destination(self):
        stock = qemus.require(self, 'stock')
        outcome = self.scenario(destination_binary=stock)
        self.check(outcome)
        self.assertIn('does not know the protocol', outcome.source.reason)

    def test_stock_destination_multifd(self):
        stock = qemus.require(self, 'stock')
        self.check(self.scenario({'multifd_channels': 2},
                                 destination_binary=stock))

    def test_multifd(self):
        self.check(self.scenario({'multifd_channels': 2}))

    def test_multifd_broken(self):
        self.assert_wrong(self.scenario({'multifd_channels': 2},
                                        source_inject=_LOST))

    def test_compression(self):
        self.check(self.scenario({'compression': {}}))

    def test_xbzrle(self):
        self.check(self.scenario({'xbzrle': True}))

    def test_auto_converge(self):
        """QEMU synchronises in the middle of rounds, too."""
        self.check(self.scenario({'auto_converge': True}))

    def test_pause_before_switchover(self):
        one = self.begun(migration={'pause_before_switchover': True})
        self.deferred(one)
        one.let_go()
        one.migration.wait_status(('pre-switchover',), 30)
        one.migration.proceed()
        self.check(one.outcome())

    def test_log_of_the_accelerator(self):
        """Read as with KVM; here it has nothing that is not known."""
        self.check(self.scenario(source_inject='read-log'))

    def test_cancelled_and_again(self):
        """What waited when it was cancelled is no concern of the next."""
        one = self.begun()
        self.deferred(one)
        one.migration.cancel()
        one.new_destination()
        one.migrate(defer=True)
        one.active()
        self.deferred(one)
        one.migration.cancel()
        one.new_destination()
        one.migrate()
        one.active()
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, outcome.source.deferral_checks)

    def test_there_and_back(self):
        one = self.begun()
        self.deferred(one)
        self.check(one.finish())
        one.move()
        one.migrate(defer=True)
        one.active()
        self.deferred(one)
        self.check(one.finish())


class RedirtiedPostcopyTest(RedirtiedCase):

    def setUp(self):
        test_postcopy.require_userfault(self)
        super().setUp()

    def scenario(self, migration=None, **given):
        one = self.begun(migration={
            'postcopy': True, 'max_postcopy_bandwidth': 1 << 20,
            **(migration or {})}, **given)
        self.deferred(one)
        for page in PAGES:
            one.guest.poke(page, 100)
        self.deferred(one)
        one.migration.start_postcopy()
        one.source.qmp('migrate-set-parameters',
                       **{'max-postcopy-bandwidth': 0})
        outcome = one.outcome()
        self.check(outcome)
        one.move()

    def test_postcopy(self):
        self.scenario({'lazy': False})

    def test_lazy(self):
        self.scenario()

    def test_preempt(self):
        self.scenario({'postcopy_preempt': True})


class KvmRedirtiedTest(RedirtiedCase):
    """KVM's log is read; how much waits depends on how fast the guest is."""

    accel = 'kvm'

    def scenario(self, **migration):
        one = self.begun(migration=migration)
        one.rounds()
        for page in PAGES:
            one.guest.poke(page, 100)
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertGreater(outcome.source.deferral_checks, 0)

    def test_records(self):
        self.scenario()

    def test_without_records(self):
        self.scenario(records=False)

    def test_multifd(self):
        self.scenario(multifd_channels=2)
