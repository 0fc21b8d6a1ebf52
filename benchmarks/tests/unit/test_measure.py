# SPDX-License-Identifier: Apache-2.0
from benchmarks import content
from benchmarks import measure
from benchmarks import run
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.tests import base


class MeasureTest(base.TestCase):

    def test_record(self):
        result = run.Result(
            'dedup', total_time_s=1.0, ram_identical=True,
            guest_verified=True, converged=True,
            pages=progress.PagePaths(peer=1, zero=2, storage=3),
            content=content.Content(100, 60, 40))
        kept = measure.record(result)
        self.assertEqual(20 * 4096, kept['unique_bytes'])
        self.assertEqual({'peer': 1, 'zero': 2, 'storage': 3},
                         kept['pages'])
        self.assertIsNone(measure.wrong(kept))

    def test_cost_of_compression(self):
        kept = measure.record(run.Result(
            'dedup', source_statistics={
                'compressed_pages': 1_000_000 // 4,
                'compression_ns': 2_048_000_000}))
        self.assertAlmostEqual(2.0, kept['source_cost_s'])
        self.assertIsNone(kept['incoming_cost_s'])
        self.assertIsNone(measure.compression_cost({'compressed_pages': 0}))

    def test_what_is_wrong(self):
        kept = measure.record(run.Result('dedup', ram_identical=False))
        self.assertIn('memory differs', measure.wrong(kept))
        kept = measure.record(run.Result('stock', guest_error='f0001'))
        self.assertIn('f0001', measure.wrong(kept))

    def test_storage_rate(self):
        path = self.temporary_dir() / 'disk'
        path.write_bytes(bytes(8 << 20))
        try:
            rate = measure.storage_rate(path)
        except OSError as error:
            self.skipTest(f'no O_DIRECT here: {error}')
        self.assertGreater(rate, 0)

    def test_neighbours(self):
        self.assertGreaterEqual(measure.Neighbours().processors(), 0.0)
