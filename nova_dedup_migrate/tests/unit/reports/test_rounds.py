# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.reports import rounds
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.reports import samples


class RoundsTest(base.TestCase):

    def test_none(self):
        self.assertEqual((), rounds.summarize([]))
        self.assertIsNone(rounds.link_rate(()))

    def test_differences(self):
        looks = [
            samples.look(1, transferred_bytes=100, total_time_ms=2000,
                         mbps=8.0, remaining_bytes=50,
                         pages=progress.PagePaths(5, 4, 3)),
            samples.look(2, transferred_bytes=160, total_time_ms=2500,
                         dirty_pages_per_s=2, mbps=4.0,
                         pages=progress.PagePaths(7, 4, 9),
                         source={'nack_digest': 1, 'nack_io': 2,
                                 'resent_pages': 4})]
        self.assertEqual((
            report.Round(1, 2.0, report.Paths(5, 4, 3), 100, 50, 1e6, 0.0),
            report.Round(2, 0.5, report.Paths(2, 0, 6), 60, 0, 5e5, 8192.0,
                         3, 4)), rounds.summarize(looks))

    def test_counters_that_fall(self):
        """QEMU began anew between two looks."""
        looks = [samples.look(5, transferred_bytes=100),
                 samples.look(1, transferred_bytes=10)]
        self.assertEqual(0, rounds.summarize(looks)[1].transferred_bytes)

    def test_link_rate(self):
        def one(transferred, rate):
            return report.Round(1, transferred_bytes=transferred,
                                link_rate=rate)
        self.assertEqual(7.0, rounds.link_rate((
            one(10 ** 8, 3.0), one(10 ** 9, 7.0), one(10 ** 6, 9.0))))
        self.assertIsNone(rounds.link_rate((one(10 ** 6, 9.0),)))
        self.assertIsNone(rounds.link_rate((one(10 ** 9, 0.0),)))
