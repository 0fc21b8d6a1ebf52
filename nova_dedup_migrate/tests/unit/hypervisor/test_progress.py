# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.tests import base

#: query-migrate of a QEMU 10.0 in the middle of a migration, abridged
REPLY = {
    'status': 'active', 'setup-time': 2, 'total-time': 1106,
    'expected-downtime': 300, 'cpu-throttle-percentage': 20,
    'ram': {'total': 34086912, 'remaining': 32071680,
            'transferred': 2229155, 'mbps': 10.50768, 'normal': 512,
            'duplicate': 186, 'dirty-sync-count': 2, 'page-size': 4096,
            'dirty-pages-rate': 186, 'postcopy-requests': 11,
            'normal-bytes': 2097152, 'multifd-bytes': 0}}


class ProgressTest(base.TestCase):

    def test_active(self):
        now = progress.Progress.from_qmp(REPLY)
        self.assertEqual(
            progress.Progress(
                status='active', rounds=2, total_bytes=34086912,
                remaining_bytes=32071680, transferred_bytes=2229155,
                mbps=10.50768, dirty_pages_per_s=186, throttle_percent=20,
                postcopy_requests=11, pages=progress.PagePaths(512, 186, 0),
                expected_downtime_ms=300, setup_time_ms=2,
                total_time_ms=1106), now)
        self.assertFalse(now.finished)

    def test_not_begun(self):
        self.assertEqual(progress.Progress(),
                         progress.Progress.from_qmp({}))

    def test_failed(self):
        now = progress.Progress.from_qmp(
            {'status': 'failed', 'error-desc': 'no route\n'})
        self.assertTrue(now.finished)
        self.assertEqual('no route?', now.error)

    def test_pages_from_storage(self):
        dedup = statistics.DedupStatistics(
            source=statistics.SourceStatistics(storage_pages=7))
        now = progress.Progress.from_qmp(REPLY, dedup)
        self.assertEqual(7, now.pages.storage)
        self.assertIs(dedup, now.dedup)

    def test_malformed(self):
        for reply in ([], {'status': 1}, {'ram': 1},
                      {'ram': {'mbps': float('inf')}},
                      {'ram': {'mbps': 10 ** 400}},
                      {'ram': {'remaining': -1}}, {'downtime': 'x'}):
            self.assertRaises(errors.MalformedReply,
                              progress.Progress.from_qmp, reply)


class EtaTest(base.TestCase):

    def test_first_sample_says_nothing(self):
        self.assertIsNone(progress.Eta().update(0.0, 1000))

    def test_steady_decline(self):
        eta = progress.Eta()
        eta.update(0.0, 1000)
        self.assertEqual(8.0, eta.update(2.0, 800))
        self.assertEqual(6.0, eta.update(4.0, 600))

    def test_nothing_left(self):
        self.assertEqual(0.0, progress.Eta().update(0.0, 0))

    def test_guest_is_faster(self):
        eta = progress.Eta()
        eta.update(0.0, 1000)
        self.assertIsNone(eta.update(1.0, 1000))
        self.assertIsNone(eta.update(2.0, 1200))

    def test_only_the_window_counts(self):
        eta = progress.Eta(window_s=5.0)
        for second in range(20):
            eta.update(float(second), 100000 - second)
        # from now on ten times faster
        for second in range(20, 26):
            result = eta.update(float(second),
                                100000 - 19 - 10 * (second - 19))
        self.assertAlmostEqual((100000 - 79) / 10, result, places=3)

    def test_clock_that_stands_still(self):
        eta = progress.Eta()
        eta.update(1.0, 1000)
        self.assertIsNone(eta.update(1.0, 500))
        self.assertIsNone(eta.update(0.5, 500))
        self.assertEqual(1.0, eta.update(2.0, 500))
