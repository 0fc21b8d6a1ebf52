# SPDX-License-Identifier: Apache-2.0
import math

from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases


def _predict(dedup=True, **changes):
    known = normal.normal(cases.make(**changes))
    return predict.predict(known, known.disks if dedup else ())


class PredictTest(base.TestCase):

    def test_bands_are_in_order(self):
        for dedup in (False, True):
            for dirty_rate in (0.0, 1e6, 1e7, 1e9):
                made = _predict(dedup, guest={'dirty_rate': dirty_rate})
                for band in (made.bytes, made.time, made.downtime):
                    self.assertLessEqual(band.low, band.likely)
                    self.assertLessEqual(band.likely, band.high)

    def test_half_is_left_out(self):
        stock, ours = _predict(False), _predict()
        self.assertAlmostEqual(0.49, predict.saves(ours, stock), delta=0.02)
        self.assertAlmostEqual(1.5 * cases.GIB * 0.99, ours.storage_bytes,
                               delta=1e6)

    def test_what_is_not_zero_counts_and_not_what_was_touched(self):
        """QEMU has touched 3 GiB; the link takes what is not zero."""
        made = _predict(False, guest={'in_use': 2.0 * cases.GIB,
                                      'in_use_error': 0.05 * cases.GIB})
        self.assertAlmostEqual(2.0, made.bytes.likely / cases.GIB, delta=0.01)
        self.assertAlmostEqual(1.9, made.bytes.low / cases.GIB, delta=0.08)
        self.assertAlmostEqual(2.1, made.bytes.high / cases.GIB, delta=0.08)
        ours = _predict(guest={'in_use': 2.0 * cases.GIB})
        self.assertAlmostEqual(0.5, ours.bytes.likely / cases.GIB, delta=0.06)

    def test_no_more_is_left_out_than_there_is(self):
        known = normal.normal(cases.make(guest={'in_use': cases.GIB}))
        self.assertAlmostEqual(
            0.99 * cases.GIB, predict.duplicate_bytes(known, known.disks),
            delta=1e6)

    def test_libvirt_has_a_part_in_the_pause(self):
        alone = _predict().downtime
        made = _predict(options={'switch_over': 0.2}).downtime
        self.assertAlmostEqual(0.2, made.likely - alone.likely)
        self.assertLess(made.low - alone.low, 0.1)
        self.assertGreater(made.high - alone.high, 0.4)

    def test_unknown_link_has_a_wide_band(self):
        made = _predict(link={'configured': None, 'measured': None})
        self.assertGreater(made.time.high, 5 * made.time.likely)

    def test_slower_one_of_limit_and_link_counts(self):
        fast = {'configured': 125e6, 'measured': 12.5e6}
        slow = {'configured': 12.5e6, 'measured': 125e6}
        limited = _predict(link=slow)
        self.assertAlmostEqual(1.05, _predict(link=fast).time.likely
                               / limited.time.likely, delta=0.02)
        # QEMU has no limit while the guest is stopped
        self.assertLess(limited.downtime.likely,
                        _predict(link=fast).downtime.likely)

    def test_operators_word_counts(self):
        self.assertAlmostEqual(
            2, _predict(link={'host_limit': 6.25e6}).time.likely
            / _predict().time.likely, delta=0.05)

    def test_tls_is_slower_on_a_fast_link(self):
        link = {'configured': None, 'measured': 5e9}
        self.assertLess(
            _predict(False, link=link).time.likely,
            _predict(False, link=link,
                     options={'tls': True}).time.likely / 2)
        self.assertLess(
            _predict(False, link=link, options={
                'tls': True, 'multifd_channels': 8}).time.likely,
            _predict(False, link=link,
                     options={'tls': True}).time.likely / 2)

    def test_hints_are_shared_out_by_size(self):
        known = normal.normal(cases.make(disks=(
            cases.disk(size=30 * cases.GIB),
            cases.disk(target='vdb', copy='none', size=10 * cases.GIB))))
        self.assertAlmostEqual(
            0.75 * 1.5 * cases.GIB * 0.99,
            predict.duplicate_bytes(known, known.disks[:1]), delta=1e6)

    def test_hints_of_disks_without_a_size(self):
        known = normal.normal(cases.make(disks=(
            cases.disk(size=0), cases.disk(target='vdb', size=0))))
        self.assertAlmostEqual(
            0.5 * 1.5 * cases.GIB * 0.99,
            predict.duplicate_bytes(known, known.disks[:1]), delta=1e6)

    def test_storage_rate(self):
        slow = cases.disk(storage_rate=10e6, size=cases.GIB)
        fast = cases.disk(storage_rate=90e6, size=9 * cases.GIB)
        unknown = cases.disk(storage_rate=None)
        self.assertIsNone(predict.storage_rate((unknown,)))
        self.assertEqual(10e6, predict.storage_rate((slow, unknown)))
        self.assertAlmostEqual(50e6, predict.storage_rate((slow, fast)))

    def test_scattered_blocks(self):
        """One byte of ten at a tenth of the rate: half the rate."""
        disk = cases.disk(storage_rate=100e6, scattered_rate=10e6)
        self.assertAlmostEqual(100e6 / 1.9,
                               predict.storage_rate((disk,), 0.1))
        self.assertAlmostEqual(90e6 / 1.8, predict.storage_rate(
            (disk,), 0.1, 0.9))
        # never the faster way
        other = cases.disk(storage_rate=100e6, scattered_rate=1e9)
        self.assertAlmostEqual(100e6, predict.storage_rate((other,), 0.5))
        slow, fast = (
            _predict(link={'configured': None, 'measured': 125e6},
                     disks=(cases.disk(scattered_rate=rate),))
            for rate in (1e6, None))
        self.assertGreater(slow.time.likely, fast.time.likely)
        self.assertGreater(slow.time.high, fast.time.high)

    def test_storage_rate_by_pages(self):
        """A disk of which memory holds little is read little."""
        slow = cases.disk(storage_rate=1e6, hint_pages=0)
        fast = cases.disk(storage_rate=90e6, hint_pages=10 ** 6)
        self.assertAlmostEqual(90e6, predict.storage_rate((slow, fast)),
                               delta=1e4)

    def test_valid_share(self):
        def duplicate(guest=None, disk=None):
            known = normal.normal(cases.make(
                guest={'valid_share': guest},
                disks=(cases.disk(hint_pages=100000, valid_share=disk),)))
            return predict.duplicate_bytes(known, known.disks) / 4096
        self.assertAlmostEqual(99000, duplicate())
        self.assertAlmostEqual(50000, duplicate(guest=0.5))
        self.assertAlmostEqual(70000, duplicate(guest=0.5, disk=0.7))
        self.assertAlmostEqual(100000, duplicate(disk=1.0))
        self.assertAlmostEqual(0, duplicate(guest=0.5, disk=0.0))

    def test_hints_by_disk(self):
        known = normal.normal(cases.make(disks=(
            cases.disk(size=cases.GIB, hint_pages=1000),
            cases.disk(size=9 * cases.GIB, hint_pages=200))))
        for disks, pages in ((known.disks, 1200), (known.disks[:1], 1000),
                             (known.disks[1:], 200), ((), 0)):
            self.assertAlmostEqual(
                pages * 0.99 * 4096, predict.duplicate_bytes(known, disks))

    def test_migrations_to_one_host_share_its_link(self):
        alone, three = (_predict(False, link={
            'configured': None, 'measured': 12e6, 'sharers': sharers})
            for sharers in (0, 2))
        self.assertAlmostEqual(3.0, three.time.likely / alone.time.likely,
                               delta=0.05)
        unknown = {'configured': None, 'measured': None}
        alone, two = (_predict(False, link={**unknown, 'sharers': sharers})
                      for sharers in (0, 1))
        self.assertAlmostEqual(2.0, two.time.likely / alone.time.likely,
                               delta=0.05)

    def test_the_limit_of_each_migration_is_not_shared(self):
        for sharers, expected in ((0, 1.0), (9, 1.0), (39, 2.0)):
            made = _predict(False, link={
                'configured': 12e6, 'measured': 252e6, 'sharers': sharers})
            alone = _predict(False, link={'configured': 12e6,
                                          'measured': 252e6})
            self.assertAlmostEqual(
                expected, made.time.likely / alone.time.likely, delta=0.05)

    def test_migrations_to_one_host_share_its_storage(self):
        alone, two = (_predict(
            link={'configured': 1e6, 'measured': 100e6, 'sharers': sharers},
            disks=(cases.disk(storage_rate=1e6),)) for sharers in (0, 1))
        self.assertGreater(alone.storage_bytes, 1.3 * two.storage_bytes)

    def test_block_migration(self):
        disks = (cases.disk(copy='own', to_copy=cases.GIB),)
        made = _predict(disks=disks, options={'block_migration': True})
        self.assertAlmostEqual(82, made.disk_time, delta=4)
        self.assertAlmostEqual(cases.GIB, made.disk_bytes, delta=1e6)
        self.assertEqual(0.0, _predict(disks=disks).disk_time)

    def test_storage_writer_converges_with_us_only(self):
        writer = {'dirty_rate': 17e6, 'disk_write_rate': 18e6}
        stock, ours = _predict(False, guest=writer), _predict(guest=writer)
        self.assertFalse(stock.completes)
        self.assertTrue(ours.completes)
        self.assertEqual(1.0, predict.saves(ours, stock))
        self.assertEqual(-1.0, predict.saves(stock, ours))


class SavesTest(base.TestCase):

    def _prediction(self, time, end='pre-copy', moved=100.0, storage=0.0):
        return plan.Prediction(
            bytes=plan.Band(moved, moved, moved),
            time=plan.Band(time, time, time),
            downtime=plan.Band(0, 0, 0), end=end, storage_bytes=storage)

    def test_table(self):
        never = self._prediction(math.inf, 'never', math.inf)
        reading = self._prediction(math.inf, 'never', math.inf, 5.0)
        aborted = self._prediction(60.0, 'aborted', 75.0, 25.0)
        for expected, ours, stock in (
                (0.5, self._prediction(5.0), self._prediction(10.0)),
                (-1.0, self._prediction(10.0), self._prediction(5.0)),
                (0.0, self._prediction(0.0), self._prediction(0.0)),
                (1.0, self._prediction(9.0), never),
                (1.0, self._prediction(90.0), aborted),
                (-1.0, aborted, self._prediction(9.0)),
                (0.0, never, never), (1.0, reading, never),
                (0.25, aborted, aborted)):
            self.assertEqual(expected, predict.saves(ours, stock))
