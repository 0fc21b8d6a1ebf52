# SPDX-License-Identifier: Apache-2.0
"""What a planner asks for."""

from nova_dedup_migrate.tests.functional.hypervisor.suites import suite


class FactsSuite(suite.Suite):
    """What a planner asks for."""

    def test_dirty_rate(self):
        guest = self.started()
        # It writes to 8 MiB all the time, unless the machine has other
        # things to do.
        rate = self.eventually(guest.dirty_rate, 'writes', 60)
        self.assertLess(rate, 12 * suite.MIB)
        guest.pause()
        self.assertLess(guest.dirty_rate(), suite.MIB)

    def test_disks(self):
        guest = self.make('guest')
        guest.start(paused=True)
        (name, device), = guest.disks().items()
        self.assertTrue(name)
        guest.qmp('qom-get', path='/machine/peripheral/' + device,
                  property='type')

    def test_progress_without_a_migration(self):
        guest = self.started()
        now = guest.progress()
        self.assertEqual('none', now.status)
        self.assertEqual(guest.is_patched(), now.dedup is not None)
