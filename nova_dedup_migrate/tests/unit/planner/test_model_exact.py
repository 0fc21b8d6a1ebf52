# SPDX-License-Identifier: Apache-2.0
"""The model, calculated by hand."""

import math

from nova_dedup_migrate.planner import model
from nova_dedup_migrate.tests import base

_MB = 1e6
#: Bytes on the link for one of a page: 8 bytes come with 4096.
_WIRE = 1 + 8 / 4096
#: Grows without a bound, nearly.
_LINEAR = 1e24


def _case(**changes):
    """1 GB at 100 MB/s, of a guest that does not write."""
    return model.Case(**{
        'unique': 1000 * _MB, 'duplicate': 0.0, 'zero': 0.0,
        'link': 100 * _MB, 'final_link': 100 * _MB, 'storage': 200 * _MB,
        'dirty_rate': 0.0, 'downtime': ((0.0, 0.0),), **changes})


def _writer(rate, **changes):
    """One that writes to rate times what the link carries."""
    return _case(**{'begun': True, 'working_set': _LINEAR,
                    'dirty_rate': rate * 100 * _MB / _WIRE, **changes})


class ExactTest(base.TestCase):

    def near(self, expected, value, message=None):
        self.assertLessEqual(abs(expected - value), 1e-9 * abs(expected),
                             (expected, value, message))

    def outcome(self, case, **expected):
        found = model.migrate(case)
        for name, value in expected.items():
            if isinstance(value, float) and math.isfinite(value):
                self.near(value, getattr(found, name), name)
            else:
                self.assertEqual(value, getattr(found, name), name)
        return found


class PassTest(ExactTest):

    def test_records(self):
        """17 bytes a page, and 6 GB/s of digests."""
        found = model.pass_over(_case(storage=1e12), 0.0, 4096e6)
        self.near(0.17 + 4096e6 / 6e9, found.time)
        self.near(17e6, found.bytes)
        self.assertEqual(4096e6, found.read)

    def test_both(self):
        found = model.pass_over(_case(), 200 * _MB, 100 * _MB)
        self.near(2 * _WIRE + 0.01 * 1700 / 4096 + 100e6 / 6e9, found.time)
        self.near(200e6 * _WIRE + 1e8 / 4096 * 17, found.bytes)
        self.assertEqual(100 * _MB, found.read)

    def test_storage_is_as_fast_as_the_link(self):
        """Then the link waits, and sends nothing twice."""
        case = _case(storage=100 * _MB / _WIRE)
        found = model.pass_over(case, 0.0, 100 * _MB)
        self.near(_WIRE, found.time)
        self.assertEqual(100 * _MB, found.read)

    def test_link_takes_over(self):
        case = _case(storage=10 * _MB)
        found = model.pass_over(case, 0.0, 1000 * _MB)
        records = 1e9 / 4096 * 17
        alone = records / 1e8 + 1e9 / 6e9
        link = 1e8 / _WIRE
        both = (1e9 - 1e7 * alone) / (link + 1e7)
        self.near(alone + both, found.time)
        self.near(records + link * both * _WIRE, found.bytes)
        self.near(1e9 - link * both, found.read)


class WireTest(ExactTest):

    def test_table(self):
        header = 8 / 4096
        for share, rate, expected in (
                (1.0, 1e9, 1.0), (1.0, 1.0, 1.0), (0.25, math.inf, 0.25),
                # 400 MB/s become 100 MB/s, which is what the link carries
                (0.25, 4e8, 0.25),
                # 200 MB/s become 50; there is room for 50 as they are
                (0.25, 2e8, 100 / 250), (0.25, 0.0, 1.0)):
            self.near(expected + header, _case(
                share=share, compressed_rate=rate).wire(1e8), (share, rate))


class MigrateTest(ExactTest):

    def test_one_round(self):
        self.outcome(
            _case(), time=0.1 + 10 * _WIRE + 0.02, bytes=1e9 * _WIRE,
            downtime=0.02, end='pre-copy', rounds=1, storage_bytes=0.0,
            disk_bytes=0.0, disk_time=0.0)

    def test_under_way(self):
        self.outcome(_case(begun=True, working_set=1e9),
                     time=10 * _WIRE + 0.02)

    def test_what_is_left_to_the_downtime(self):
        """300 ms are worth 30 MB, of which half is left on average."""
        self.outcome(
            _case(downtime=((0.0, 0.3),), final_link=200 * _MB),
            time=0.1 + 9.85 * _WIRE + 0.075 * _WIRE + 0.02,
            downtime=0.02 + 0.075 * _WIRE, bytes=1e9 * _WIRE)

    def test_records_and_storage(self):
        self.outcome(_case(unique=0.0, duplicate=1e9), time=0.1 + 5 + 0.02,
                     storage_bytes=1e9)

    def test_zero_pages(self):
        self.outcome(_case(unique=0.0, zero=4096e3), bytes=9000.0)

    def test_disks(self):
        """Half of the link is left beside what the guest writes."""
        memory = 0.1 + 1e9 * _WIRE / 5e7 + 0.07
        self.outcome(
            _case(disk_bytes=2e9, disk_write_rate=5e7, final_link=5e7),
            disk_time=40.0, time=40 + memory, downtime=0.07,
            disk_bytes=4e9 + 5e7 * memory,
            bytes=1e9 * _WIRE + 4e9 + 5e7 * memory)

    def test_a_tenth_of_the_link_is_left(self):
        self.outcome(_case(disk_bytes=1e8, disk_write_rate=5e8),
                     disk_time=10.0, time=10 + 0.1 + 100 * _WIRE + 0.07)

    def test_the_timeout_includes_the_disks(self):
        self.outcome(_case(disk_bytes=1e9, timeout=14.0), disk_time=10.0,
                     time=14.0, end='aborted', downtime=math.inf)

    def test_when_qemu_looks(self):
        """100 KB are left after 2 rounds, 1 KB after 3; it looks in 50 ms,
        in which the guest writes to 50 KB."""
        self.outcome(_writer(0.01), rounds=3, end='pre-copy')
        # a round of 50 ms leaves what it writes to in 50 ms
        self.outcome(_writer(0.06, unique=4.98 * _MB), rounds=1)
        self.outcome(_writer(0.06, unique=5.0 * _MB), rounds=2)

    def test_rounds_that_leave_less(self):
        """Each leaves a tenth, until 1 MB would take the downtime."""
        found = self.outcome(_writer(0.1, downtime=((0.0, 0.01),), left=0.0),
                             rounds=3)
        self.near((1e9 + 1e8 + 1e7) * _WIRE + 1e6 * _WIRE, found.bytes)
        self.near((10 + 1 + 0.1 + 0.01) * _WIRE + 0.02, found.time)

    def test_endless(self):
        self.outcome(_writer(3.0), rounds=2000, end='never', time=math.inf,
                     bytes=math.inf, downtime=math.inf)


class EndTest(ExactTest):

    def test_postcopy(self):
        """It is switched to if a round leaves more than 90 % of the one
        before, but not after the first one."""
        found = self.outcome(_writer(0.91, postcopy=True), end='post-copy',
                             rounds=2, downtime=0.02)
        self.near(1e9 * (1 + 0.91 + 0.91 ** 2) * _WIRE, found.bytes)
        self.near(10 * (1 + 0.91 + 0.91 ** 2) * _WIRE + 0.02, found.time)
        self.outcome(_writer(0.89, postcopy=True), end='pre-copy')

    def test_postcopy_of_disks(self):
        self.outcome(_writer(0.95, postcopy=True, disk_bytes=1e8),
                     downtime=0.07)

    def test_throttled(self):
        """By 20 % in the third round, then by 10 % more each, as long as
        more than half of what was sent is written to."""
        left, sent, rounds = 1e9, 0.0, 0
        factors = [1.0, 1.0, 0.8, 0.7, 0.6, 0.5, 0.4] + [0.3] * 99
        for factor in factors:
            rounds += 1
            sent += left
            left *= 1.5 * factor
            if left <= 0.05 * 1.5e8 / _WIRE * factor:
                break
        found = self.outcome(_writer(1.5, auto_converge=True), rounds=rounds,
                             end='pre-copy')
        self.near((sent + left) * _WIRE, found.bytes)

    def test_throttled_to_a_standstill(self):
        """It is given 1 % at least: 100 times the link is too much."""
        self.outcome(_writer(200.0, auto_converge=True, timeout=1e9),
                     end='aborted')
        self.outcome(_writer(20.0, auto_converge=True), end='pre-copy')

    def test_aborted(self):
        self.outcome(_case(timeout=5.1), time=5.1, bytes=5e8,
                     end='aborted', downtime=math.inf, rounds=1)

    def test_time_is_just_enough(self):
        self.outcome(_case(timeout=10.3), end='pre-copy')

    def test_forced(self):
        """After 5 s 500 MB are left, and what was written meanwhile."""
        left = 1e9 - 5e8 / _WIRE + 5e7 / _WIRE
        self.outcome(
            _writer(0.1, timeout=5.0, force_complete=True), end='forced',
            time=5 + left * _WIRE / 1e8 + 0.02,
            downtime=left * _WIRE / 1e8 + 0.02)
        # never more than the guest writes to again and again
        self.outcome(
            _writer(0.1, timeout=5.0, force_complete=True,
                    working_set=1e8), downtime=_WIRE + 0.02)

    def test_forced_into_postcopy(self):
        self.outcome(_writer(0.1, timeout=5.0, force_complete=True,
                             postcopy=True), end='post-copy', downtime=0.02)

    def test_storage_by_the_timeout(self):
        """Half of what it would have read by the end of the round."""
        self.outcome(_case(unique=0.0, duplicate=1e9, timeout=2.6),
                     storage_bytes=5e8, end='aborted')

    def test_timeout_of_rounds_without_end(self):
        """2000 rounds of 160 ms end before it comes."""
        given = {'unique': 20 * _MB, 'working_set': 20 * _MB,
                 'timeout': 1000.0, 'dirty_rate': 200 * _MB}
        # the link carries 100 MB/s all that time
        self.outcome(_case(begun=True, **given), end='aborted', time=1000.0,
                     bytes=1e11, storage_bytes=0.0, rounds=2001,
                     downtime=math.inf)
        self.outcome(_case(begun=True, force_complete=True, **given),
                     end='forced')
        self.outcome(_case(begun=True, force_complete=True, postcopy=True,
                           **given), end='post-copy')


class DowntimeTest(ExactTest):
    """16 MB are dirty after any round; the limit is worth 5 MB, and the
    guest writes to 10 MB before QEMU looks."""

    def of(self, **changes):
        return model.migrate(_case(**{
            'dirty_rate': 200 * _MB, 'working_set': 20 * _MB,
            'downtime': ((0.0, 0.05), (100.0, 0.7)), 'left': 0.0,
            **changes}))

    def test_extra_downtime(self):
        for extra, enough in ((0.008, False), (0.011, True)):
            self.assertEqual(enough, self.of(extra_downtime=extra).time < 50,
                             extra)

    def test_the_most(self):
        for most, enough in ((0.058, False), (0.061, True)):
            self.assertEqual(enough, self.of(
                extra_downtime=1.0, max_downtime=most).time < 50, most)

    def test_only_rounds_that_no_longer_leave_less(self):
        """80 % of the one before is less, 95 % is not."""
        plain = model.migrate(_writer(0.8))
        self.assertEqual(plain, model.migrate(_writer(
            0.8, extra_downtime=100.0)))
        self.outcome(_writer(0.95, extra_downtime=100.0), rounds=3,
                     end='pre-copy')

    def test_a_step_of_novas(self):
        self.assertGreater(self.of().time, 100)
        self.assertLess(self.of().time, 101)
        self.assertLess(self.of(downtime=((0.0, 0.7),)).time, 11)
        # before the first step there is no limit at all
        self.assertGreater(self.of(downtime=((30.0, 0.7),)).time, 30)
