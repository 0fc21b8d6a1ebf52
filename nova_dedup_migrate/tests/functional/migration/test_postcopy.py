# SPDX-License-Identifier: Apache-2.0
"""Post-copy begins while pages wait for storage."""

import pathlib

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests.functional.migration import case

PAGES = case.PAGES
HUNG = 'fetch-delay-us=100000000'
_USERFAULT = pathlib.Path('/proc/sys/vm/unprivileged_userfaultfd')


def require_userfault(test):
    """Skip the test if there can be no post-copy here."""
    if not _USERFAULT.exists():
        test.skipTest('the kernel has no userfaultfd')


class PostcopyTest(case.MigrationCase):
    """Without lazy fetches, unless a test is about a peer's."""

    def setUp(self):
        require_userfault(self)
        super().setUp()

    def scenario(self, inject='', wait=None, recover=False, **migration):
        one = self.begun(inject=inject, migration={
            'postcopy': True, 'max_postcopy_bandwidth': 1 << 20,
            'lazy': False, **migration})
        (wait or (lambda rig: rig.recorded(len(PAGES))))(one)
        one.migration.start_postcopy()
        if recover:
            one.migration.interrupt()
            one.migration.recover()
        one.source.qmp('migrate-set-parameters',
                       **{'max-postcopy-bandwidth': 0})
        outcome = one.outcome()
        self.assert_right(outcome)
        one.move()
        return outcome

    def test_all_fetched(self):
        outcome = self.scenario(
            wait=lambda one: one.until(
                lambda: one.figures().storage_pages == len(PAGES), 'answers'))
        self.assertEqual(0, outcome.source.final_pages)

    def test_backlog(self):
        outcome = self.scenario(HUNG)
        self.assertEqual(len(PAGES), outcome.source.final_pages)

    def test_fetches_end_in_postcopy(self):
        """Reads end after the start of post-copy: nobody wants them."""
        self.scenario('fetch-delay-us=700000')

    def test_copying_when_it_begins(self):
        self.scenario('copy-delay-us=50000',
                      wait=lambda one: one.fetched(1))

    def test_not_answered(self):
        """Placed, but the source does not know: discarded, sent again."""
        self.scenario('no-answers',
                      wait=lambda one: one.fetched(len(PAGES)))

    def test_written_to_before(self):
        def wait(one):
            one.recorded(len(PAGES))
            for page in PAGES:
                one.guest.poke(page, 100)
        self.scenario(HUNG, wait)

    def test_what_is_missing_is_noticed(self):
        """A page neither fetched nor to be sent: the guest must not run."""
        one = self.begun(inject=HUNG, source_inject='no-redirty', migration={
            'postcopy': True, 'lazy': False})
        one.recorded(len(PAGES))
        one.source.qmp('migrate-start-postcopy')
        self.eventually(lambda: 'neither fetched nor sent'
                        in one.destination.last_words(), 'the message')

    def test_preempt(self):
        self.scenario(HUNG, postcopy_preempt=True)

    def check_multifd(self, **migration):
        """Its channels are synchronised before, and silent from then on."""
        self.require_multifd()
        outcome = self.scenario(HUNG, multifd_channels=2, **migration)
        self.assertEqual(len(PAGES), outcome.source.final_pages)

    def test_multifd(self):
        self.check_multifd()

    def test_multifd_lazy(self):
        self.check_multifd(lazy=True)

    def require_multifd(self):
        probe = self.rig()
        probe.boot()
        try:
            probe.source.qmp('migrate-set-capabilities', capabilities=[
                {'capability': name, 'state': True}
                for name in ('multifd', 'postcopy-ram')])
        except errors.QmpError as error:
            self.skipTest('this QEMU has no post-copy with multifd: %s'
                          % error)
        finally:
            probe.source.destroy()

    def test_recovery(self):
        self.scenario(HUNG, recover=True)

    def test_recovery_preempt(self):
        self.scenario(HUNG, recover=True, postcopy_preempt=True)

    def test_allowed_but_not_used(self):
        one = self.begun(migration={'postcopy': True})
        one.recorded(len(PAGES))
        self.assert_right(one.finish())

    def test_cancelled_before_it_begins(self):
        one = self.begun(inject=HUNG, migration={'postcopy': True})
        one.recorded(len(PAGES))
        one.migration.cancel()
        one.check_home()
        one.new_destination()
        one.migrate(postcopy=True)
        one.recorded(len(PAGES))
        one.migration.start_postcopy()
        self.assert_right(one.outcome())
