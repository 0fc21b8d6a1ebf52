# SPDX-License-Identifier: Apache-2.0
import dataclasses
import math

from nova_dedup_migrate.planner import model
from nova_dedup_migrate.tests import base

_MB = 1e6
#: 1 GB over 100 MB/s, a guest that idles
_IDLE = model.Case(unique=1000 * _MB, duplicate=0.0, zero=0.0,
                   link=100 * _MB, final_link=100 * _MB,
                   storage=200 * _MB, dirty_rate=0.0,
                   downtime=((0.0, 0.0),))


def _case(**changes):
    return dataclasses.replace(_IDLE, **changes)


class PassTest(base.TestCase):
    """Time, bytes on the link and bytes read, in MB."""

    def _check(self, expected, unique, duplicate, storage):
        one = model.pass_over(_case(storage=storage * _MB), unique * _MB,
                              duplicate * _MB)
        for want, got in zip(expected, (one.time, one.bytes / _MB,
                                        one.read / _MB), strict=True):
            self.assertAlmostEqual(want, got, delta=0.02 * want + 1e-6)

    def test_nothing(self):
        self._check((0, 0, 0), 0, 0, 0)

    def test_content_only(self):
        self._check((10, 1000, 0), 1000, 0, 200)

    def test_storage_is_done_first(self):
        self._check((5.1, 502, 500), 500, 500, 200)

    def test_link_waits_for_faster_storage(self):
        self._check((4.5, 103.7, 900), 100, 900, 200)

    def test_link_takes_over_from_slower_storage(self):
        # both are done after (100 + 900) / (100 + 20) seconds
        self._check((8.5, 835, 167), 100, 900, 20)

    def test_dead_storage(self):
        self._check((10.2, 1004, 0), 100, 900, 0)


class MigrateTest(base.TestCase):

    def test_idle(self):
        outcome = model.migrate(_IDLE)
        self.assertEqual(model.PRECOPY, outcome.end)
        self.assertAlmostEqual(10.12 + 0.02, outcome.time, places=2)
        self.assertAlmostEqual(1002, outcome.bytes / _MB, delta=1)
        self.assertAlmostEqual(0.02, outcome.downtime)

    def test_rounds_that_lead_no_further(self):
        """20 MB are dirty after any round; 50 ms are worth 5 MB."""
        given = {'dirty_rate': 200 * _MB, 'working_set': 20 * _MB,
                 'downtime': ((0.0, 0.05), (100.0, 0.7))}
        plain = model.migrate(_case(**given))
        adapted = model.migrate(_case(extra_downtime=0.2, **given))
        self.assertGreater(plain.time, 100)
        self.assertLess(adapted.time, 15)
        self.assertLess(adapted.bytes, plain.bytes)
        self.assertLess(adapted.downtime, 0.3)

    def test_too_much_for_the_extra_downtime(self):
        given = {'dirty_rate': 200 * _MB, 'working_set': 20 * _MB,
                 'downtime': ((0.0, 0.05), (100.0, 0.7))}
        plain = model.migrate(_case(**given))
        self.assertEqual(plain, model.migrate(_case(
            extra_downtime=0.02, **given)))
        self.assertEqual(plain, model.migrate(_case(
            extra_downtime=0.2, max_downtime=0.07, **given)))

    def test_zero_pages_cost_their_header(self):
        more = model.migrate(_case(zero=4096 * 1000.0))
        self.assertAlmostEqual(9000, more.bytes
                               - model.migrate(_IDLE).bytes, places=3)

    def test_last_round_in_the_pause(self):
        outcome = model.migrate(_case(downtime=((0.0, 0.3),)))
        self.assertAlmostEqual(0.15 + 0.02, outcome.downtime, places=2)

    def test_pause_at_the_full_rate(self):
        outcome = model.migrate(_case(downtime=((0.0, 0.3),), left=1.0,
                                      final_link=1000 * _MB))
        self.assertAlmostEqual(0.03 + 0.02, outcome.downtime, places=2)

    def test_downtime_steps(self):
        """A limit that rises later lets a busy guest converge then."""
        steps = ((0.0, 0.01), (60.0, 5.0))
        busy = _case(dirty_rate=150 * _MB, downtime=steps,
                     working_set=300 * _MB)
        outcome = model.migrate(busy)
        self.assertEqual(model.PRECOPY, outcome.end)
        self.assertGreater(outcome.time, 60)

    def test_busy_guest_converges(self):
        outcome = model.migrate(_case(dirty_rate=50 * _MB,
                                      downtime=((0.0, 0.3),)))
        self.assertEqual(model.PRECOPY, outcome.end)
        self.assertGreater(outcome.time, 14)
        self.assertLess(outcome.time, 21)

    def test_too_busy_ends_never(self):
        outcome = model.migrate(_case(dirty_rate=300 * _MB))
        self.assertEqual(model.NEVER, outcome.end)
        self.assertTrue(math.isinf(outcome.time))
        self.assertTrue(math.isinf(outcome.bytes))

    def test_small_working_set_ends(self):
        """What fits into the pause does not matter."""
        outcome = model.migrate(_case(
            dirty_rate=300 * _MB, working_set=20 * _MB,
            downtime=((0.0, 0.3),)))
        self.assertEqual(model.PRECOPY, outcome.end)

    def test_timeout_aborts(self):
        outcome = model.migrate(_case(dirty_rate=300 * _MB, timeout=60.0))
        self.assertEqual(model.ABORTED, outcome.end)
        self.assertAlmostEqual(60, outcome.time, delta=0.5)
        self.assertAlmostEqual(6000, outcome.bytes / _MB, delta=50)

    def test_timeout_in_the_first_round(self):
        outcome = model.migrate(_case(timeout=5.0))
        self.assertEqual(model.ABORTED, outcome.end)
        self.assertAlmostEqual(5, outcome.time, delta=0.1)

    def test_timeout_forces(self):
        outcome = model.migrate(_case(dirty_rate=300 * _MB, timeout=60.0,
                                      force_complete=True))
        self.assertEqual(model.FORCED, outcome.end)
        self.assertGreater(outcome.downtime, 5)

    def test_postcopy(self):
        outcome = model.migrate(_case(dirty_rate=300 * _MB, postcopy=True))
        self.assertEqual(model.POSTCOPY, outcome.end)
        self.assertLess(outcome.downtime, 0.1)
        self.assertLess(outcome.time, 50)

    def test_auto_converge(self):
        outcome = model.migrate(_case(dirty_rate=150 * _MB,
                                      auto_converge=True,
                                      downtime=((0.0, 0.3),)))
        self.assertEqual(model.PRECOPY, outcome.end)

    def test_disks_go_first(self):
        outcome = model.migrate(_case(disk_bytes=2000 * _MB))
        self.assertAlmostEqual(20, outcome.disk_time)
        self.assertAlmostEqual(30.1, outcome.time, delta=0.2)
        self.assertAlmostEqual(3002, outcome.bytes / _MB, delta=2)
        self.assertAlmostEqual(2000, outcome.disk_bytes / _MB)

    def test_writes_take_their_share_of_the_link(self):
        outcome = model.migrate(_case(disk_bytes=2000 * _MB,
                                      disk_write_rate=50 * _MB))
        self.assertAlmostEqual(40, outcome.disk_time)
        self.assertAlmostEqual(60.1, outcome.time, delta=0.3)

    def test_disk_writes_faster_than_the_link(self):
        outcome = model.migrate(_case(disk_bytes=100 * _MB,
                                      disk_write_rate=500 * _MB))
        self.assertAlmostEqual(10, outcome.disk_time)

    def test_page_cache_writer(self):
        """What is on the disk again soon need not go through the link."""
        writer = _case(duplicate=500 * _MB, unique=500 * _MB,
                       dirty_rate=90 * _MB, downtime=((0.0, 0.3),))
        without = model.migrate(writer)
        helped = model.migrate(dataclasses.replace(writer,
                                                   dirty_duplicate=0.9))
        self.assertLess(helped.time, without.time / 2)

    def test_never_slower_where_the_link_is_slower_than_digests(self):
        for share in (0.0, 0.1, 0.5, 0.9, 1.0):
            for storage in (0.0, 1.0, 5e6, 5e7, 5e8, 5e9):
                for link in (1e6, 12.5e6, 125e6):
                    case = _case(unique=1e9 * (1 - share),
                                 duplicate=1e9 * share, storage=storage,
                                 link=link, final_link=link)
                    stock = dataclasses.replace(case, unique=1e9,
                                                duplicate=0.0)
                    self.assertLess(model.migrate(case).time,
                                    model.migrate(stock).time * 1.05,
                                    (share, storage, link))


class CompressionTest(base.TestCase):

    def case(self, **changes):
        return model.Case(**{
            'unique': 1e9, 'duplicate': 0.0, 'zero': 0.0, 'link': 1e7,
            'final_link': 1e7, 'storage': 1e8, 'dirty_rate': 0.0, **changes})

    def test_what_remains(self):
        plain = model.migrate(self.case())
        small = model.migrate(self.case(share=0.2, compressed_rate=4e8))
        self.assertAlmostEqual(0.2, small.bytes / plain.bytes, 2)
        self.assertLess(small.time, 0.22 * plain.time)

    def test_link_that_is_faster_than_threads(self):
        """What they do not get done goes as it is: it is never slower."""
        for link in 1e7, 1e8, 1e9, 1e10:
            for rate in 1e6, 1e8, 1e10:
                case = self.case(share=0.2, compressed_rate=rate)
                header = model.PAGE_HEADER / case.page_size
                self.assertLessEqual(case.wire(link), 1 + header)
                self.assertGreaterEqual(case.wire(link), 0.2)
        slow = self.case(share=0.2, compressed_rate=1e6).wire(1e9)
        self.assertGreater(slow, 0.99)
