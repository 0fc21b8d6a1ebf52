# SPDX-License-Identifier: Apache-2.0
"""Dirty pages come from elsewhere with KVM: the essentials once more."""

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import test_late_fetch
from nova_dedup_migrate.tests.functional.migration import test_multifd
from nova_dedup_migrate.tests.functional.migration import test_switchover


class KvmTest(case.MigrationCase):

    accel = 'kvm'

    def test_there_and_back(self):
        one = self.begun()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(case.PAGES), outcome.source.storage_pages)
        one.move()
        one.migrate()
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        self.assert_right(one.finish())

    late = test_late_fetch.LateFetchTest
    scenario = late.scenario
    poke = staticmethod(late.poke)
    test_page_while_pending = late.test_page_while_pending
    test_page_while_pending_broken = late.test_page_while_pending_broken
    test_page_while_copying = late.test_page_while_copying
    pair = late.pair
    broken = late.broken
    del late


class KvmMultifdTest(case.MigrationCase):

    accel = 'kvm'
    scenario = test_multifd.FetchedBecomesZeroTest.scenario
    test_plain = test_multifd.FetchedBecomesZeroTest.test_plain
    test_broken = test_multifd.FetchedBecomesZeroTest.test_broken


class KvmSwitchoverTest(case.MigrationCase):

    accel = 'kvm'
    scenario = test_switchover.SwitchoverTest.scenario
    test_storage_hangs = test_switchover.SwitchoverTest.test_storage_hangs
    test_storage_hangs_broken = (
        test_switchover.SwitchoverTest.test_storage_hangs_broken)
