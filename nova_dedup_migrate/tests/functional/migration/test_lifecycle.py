# SPDX-License-Identifier: Apache-2.0
"""Migrations that are given up, repeated, or lose one of their ends."""

import random

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests.functional.migration import case

PAGES = case.PAGES


class LifecycleTest(case.MigrationCase):

    def cancel(self, one, begun=True):
        """:param begun: whether the migration's thread has run for sure"""
        self.assertEqual('cancelled', one.migration.cancel().status)
        self.assertIn(one.figures().state,
                      ('done',) if begun else ('done', 'armed'))
        one.check_home()

    def retry(self, one, **migration):
        one.new_destination()
        one.migrate(**migration)
        one.active()
        self.assertEqual('active', one.figures().state)
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        return outcome

    def check_cancel(self, inject='', resend=False, **migration):
        """Cancelled at some moments, then done."""
        one = self.rig(inject=inject)
        one.boot()
        one.read_pages(PAGES)
        moments = (None, one.active,
                   lambda: one.recorded(len(PAGES)), one.rounds)
        for wait in moments:
            one.migrate(resend=resend, **migration)
            if wait is not None:
                wait()
            self.cancel(one, wait is not None)
            one.new_destination()
        one.new_destination(env={})
        self.retry(one, **migration)

    def test_cancel_and_retry(self):
        self.check_cancel()

    def test_cancel_and_retry_multifd(self):
        self.check_cancel(multifd_channels=2)

    def test_cancel_at_once_multifd(self):
        """Channels end while they are set up (patch 0005-cancel)."""
        one = self.rig()
        one.boot()
        one.read_pages(PAGES)
        for _ in range(20):
            one.migrate(multifd_channels=2)
            self.cancel(one, begun=False)
            one.new_destination()
        self.retry(one, multifd_channels=2)

    def test_cancel_while_fetching(self):
        self.check_cancel('fetch-delay-us=300000', resend=True)

    def test_cancel_while_answers_are_late(self):
        self.check_cancel('answer-delay-us=300000')

    def test_cancel_while_copying(self):
        self.check_cancel('copy-delay-us=100000')

    def test_cancel_at_random_moments(self):
        one = self.rig()
        one.boot()
        one.read_pages(PAGES)
        chance = random.Random(20)
        for _ in range(8):
            one.migrate(resend=True)
            # however long that takes: any moment is good
            for _ in range(chance.randrange(30)):
                one.source.run_state()
            self.cancel(one)
            one.new_destination()
        self.retry(one)

    def test_not_armed_again(self):
        """Arming holds for one migration, however it ends."""
        one = self.begun()
        self.cancel(one)
        one.new_destination()
        one.migrate(arm=False)
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, one.arrived().record_pages)

    def test_cancel_before_the_switchover(self):
        one = self.begun(migration={'pause_before_switchover': True})
        one.let_go()
        one.migration.wait_status(('pre-switchover',), 30)
        self.assertEqual('cancelled', one.migration.cancel().status)
        self.eventually(lambda: one.source.run_state() == 'running',
                        'the guest goes on')
        one.check_home()
        self.retry(one)

    def test_disarmed_in_flight(self):
        one = self.begun(inject='fetch-delay-us=100000000')
        one.recorded(len(PAGES))
        one.source.disarm_dedup()
        one.until(lambda: one.figures().outstanding == 0, 'draining')
        self.assertEqual('draining', one.figures().state)
        self.assertEqual('disarmed during the migration',
                         one.figures().reason)
        one.read_pages(PAGES)
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.record_pages)

    def test_disarmed_before(self):
        one = self.rig()
        one.boot()
        one.read_pages(PAGES)
        one.source.arm_dedup()
        one.source.disarm_dedup()
        one.migrate(arm=False)
        one.rounds()
        self.assert_right(one.finish())
        self.assertEqual(0, one.figures().record_pages)

    def test_arming_while_it_runs_is_refused(self):
        one = self.begun()
        self.assertRaises(errors.QmpError, one.source.arm_dedup)
        self.assert_right(one.finish())

    def test_tracking_off_while_it_runs(self):
        one = self.begun()
        one.recorded(len(PAGES))
        one.source.track_dedup(False)
        one.read_pages(PAGES)
        one.rounds()
        self.assert_right(one.finish())

    def test_destination_dies(self):
        one = self.begun(inject='fetch-delay-us=500000')
        one.recorded(len(PAGES))
        one.destination.destroy()
        self.assertRaises(errors.MigrationFailed, one.migration.wait, 30)
        self.eventually(lambda: one.source.run_state() == 'running',
                        'the guest goes on')
        one.check_home()
        one.new_destination(env={})
        self.retry(one)

    def test_destination_dies_at_the_switchover(self):
        one = self.begun(migration={'pause_before_switchover': True})
        one.let_go()
        one.migration.wait_status(('pre-switchover',), 30)
        one.destination.destroy()
        one.migration.proceed()
        self.assertRaises(errors.MigrationFailed, one.migration.wait, 30)
        self.eventually(lambda: one.source.run_state() == 'running',
                        'the guest goes on')
        one.check_home()
        self.retry(one)

    def test_there_and_back(self):
        """The map is warm at the destination: the way back saves as much."""
        one = self.begun()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        first = one.finish()
        self.assert_right(first)
        self.assertEqual(len(PAGES), first.source.storage_pages)
        for _ in range(3):
            one.move()
            one.migrate()
            one.active()
            one.until(lambda: one.figures().outstanding == 0, 'answers')
            back = one.finish()
            self.assert_right(back)
            self.assertGreaterEqual(back.source.storage_pages,
                                    0.9 * first.source.storage_pages)

    def test_arrived_while_the_way_back_begins(self):
        """Old reads of the way there end during the way back."""
        one = self.begun(inject='fetch-delay-us=2000000')
        one.recorded(len(PAGES))
        self.assert_right(one.finish())
        one.move()
        one.read_pages(PAGES)
        one.migrate()
        one.active()
        self.assert_right(one.finish())
