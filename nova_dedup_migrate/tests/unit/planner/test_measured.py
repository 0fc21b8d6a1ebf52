# SPDX-License-Identifier: Apache-2.0
"""The model against migrations that were measured.

From runs of ``make bench-shared-storage`` (TCG, 768 MiB, an idle guest,
storage at 1.2 GB/s, stock and patched QEMU 10.0.13) and of
``make demo ARGS="--storage slow --storage-rate 10 --link 200 --wire 1000
--workload idle --duplicates ..."``.  ``python -m benchmarks.prediction``
makes the comparison for a whole ledger.
"""

import dataclasses

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.tests import base

#: The promise to operators.
_WITHIN = 0.15


@dataclasses.dataclass(frozen=True)
class Row:
    """Name; link in Mbit/s while it runs and in the end; bytes of memory
    not zero and zero; hints; storage in bytes/s; what was measured."""

    name: str
    configured: int | None
    measured: int
    in_use: int
    zero: int
    hints: int
    time: float
    link_bytes: int
    storage: float = 1.2e9


_ROWS = (
    Row('10 %', None, 1000, 506318848, 300187648, 0, 4.126, 508129213),
    Row('10 %', None, 1000, 505618432, 300978176, 12295, 3.700, 457176368),
    Row('60 %', None, 1000, 510058496, 296460288, 0, 4.131, 511867993),
    Row('60 %', None, 1000, 508985344, 297316352, 73738, 1.892, 209361513),
    Row('85 %', None, 1000, 576131072, 230522880, 0, 4.666, 577924915),
    Row('85 %', None, 1000, 566849536, 239288320, 117772, 0.924, 87209318),
    Row('35 %', 200, 500, 505593856, 301215744, 0, 19.328, 507407224),
    Row('35 %', 200, 500, 507703296, 299130880, 43023, 12.800, 333652217),
    Row('85 %', 200, 500, 576364544, 230424576, 0, 22.022, 578161057),
    Row('85 %', 200, 500, 576413696, 230510592, 117779, 3.843, 96758846),
    Row('35 %', 100, 500, 507785216, 299159552, 0, 38.764, 509601820),
    Row('35 %', 100, 500, 507764736, 299188224, 43024, 25.437, 333720224),
    Row('85 %', 100, 500, 567615488, 239394816, 0, 43.432, 569418511),
    Row('85 %', 100, 500, 576389120, 230412288, 117778, 7.595, 96726479),
    Row('35 %', 100, 250, 507662336, 299118592, 0, 38.787, 509478628),
    Row('35 %', 100, 250, 507777024, 299204608, 43024, 25.472, 333732673),
    Row('slow, 85 %', 200, 1000, 576020480, 230436864, 0, 22.170,
        577816294),
    Row('slow, 85 %', 200, 1000, 577245184, 230506496, 117777, 16.994,
        409901550, 10e6),
    Row('slow, 35 %', 200, 1000, 341831680, 196206592, 0, 13.150,
        343093351),
    Row('slow, 35 %', 200, 1000, 341831680, 196206592, 30950, 9.632,
        240222385, 10e6),
)


class MeasuredTest(base.TestCase):

    def test_time_and_bytes(self):
        for row in _ROWS:
            with self.subTest(row=row):
                prediction = self._predict(row)
                self._near(row.time, prediction.time.likely, row)
                self._near(row.link_bytes, prediction.bytes.likely, row)
                self.assertIn(row.time, prediction.time, row)
                self.assertIn(row.link_bytes, prediction.bytes, row)

    def _predict(self, row):
        disk = facts.Disk('disk', 'vda', facts.SHARED, size=1 << 30,
                          storage_rate=row.storage)
        known = normal.normal(facts.Facts(
            guest=facts.Guest(memory=row.in_use + row.zero,
                              resident=row.in_use + predict.OWN,
                              hint_pages=row.hints,
                              dirty_rate=0.0),
            disks=(disk,), source=facts.End('source', True),
            destination=facts.End('destination', True),
            link=facts.Link(
                configured=(None if row.configured is None
                            else row.configured * 125e3),
                measured=row.measured * 125e3),
            options=facts.Options(
                downtime_ms=300 if row.configured is None else 20)))
        return predict.predict(known, (disk,) if row.hints else ())

    def _near(self, measured, predicted, row):
        error = predicted / measured - 1
        self.assertLessEqual(abs(error), _WITHIN, '%s: predicted %.4g, '
                             'measured %.4g' % (row, predicted, measured))
