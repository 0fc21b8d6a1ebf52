# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.planner import working_set
from nova_dedup_migrate.tests import base

MIB = 1 << 20
#: 10 MiB that it writes to again and again, and a little that is new.
HOT = working_set.WorkingSet(((1, 10 * MIB), (10, 12 * MIB), (60, 20 * MIB)))


class WorkingSetTest(base.TestCase):

    def test_between_windows(self):
        self.assertEqual(0, HOT.bytes(0))
        self.assertEqual(5 * MIB, HOT.bytes(0.5))
        self.assertEqual(12 * MIB, HOT.bytes(10))
        self.assertEqual(16 * MIB, HOT.bytes(35))
        # Beyond the longest one it grows as in its last part
        self.assertAlmostEqual(20 * MIB + 60 * 8 * MIB / 50, HOT.bytes(120))

    def test_a_longer_window_with_less(self):
        """The guest had less to do then."""
        known = working_set.WorkingSet(((1, 10), (10, 4), (60, 40)))
        self.assertEqual([10, 10, 40],
                         [known.bytes(length) for length in (1, 10, 60)])

    def test_lengths_of_the_windows(self):
        """Agents of both hosts have to measure the same."""
        self.assertEqual((1, 10, 60), working_set.WINDOWS)

    def test_nothing_was_measured(self):
        self.assertEqual(0, working_set.WorkingSet(()).bytes(5))

    def test_one_window(self):
        self.assertEqual(50, working_set.WorkingSet(((1, 10),)).bytes(5))


class ExpectTest(base.TestCase):

    def expect(self, rate, limit=0.5, known=HOT, memory=1000 * MIB):
        return working_set.expect(memory, known, rate * MIB, limit)

    def test_idle(self):
        found = self.expect(100, known=working_set.WorkingSet(((1, 0),)))
        self.assertEqual((1, 10.0, 1000 * MIB, 0.0, True), (
            found.rounds, found.seconds, found.bytes, found.downtime,
            found.converges))

    def test_fits_at_once(self):
        found = self.expect(100, memory=10 * MIB)
        self.assertEqual((0, 0.0, 0.1, True), (
            found.rounds, found.seconds, found.downtime, found.converges))

    def test_converges(self):
        """Each round leaves what is written to in its time."""
        found = self.expect(100, limit=0.1)
        self.assertTrue(found.converges)
        # 10 s leave 12 MiB, 0.12 s leave 1.2 MiB
        self.assertEqual(2, found.rounds)
        self.assertAlmostEqual(0.012, found.downtime)
        self.assertAlmostEqual(10.12, found.seconds)

    def test_does_not(self):
        found = self.expect(8, limit=0.1)
        self.assertFalse(found.converges)
        # 10.25 MiB are what it writes to in the time of sending them
        self.assertAlmostEqual(1.28, found.downtime, 1)

    def test_rounds_that_leave_hardly_less(self):
        """100 MB/s; what it writes to in a round is 98.9 or 99.1 % of it."""
        for written, rounds in ((98.9, 200), (99.1, 2)):
            known = working_set.WorkingSet(((1e9, written * 1e9 / 100),))
            found = working_set.expect(1e9, known, 1.0, 1e-9)
            self.assertEqual((rounds, False),
                             (found.rounds, found.converges))

    def test_it_ends_with_the_least_that_was_left(self):
        """Memory of 20 MB in two rounds at 1 MB/s, 30 MB/min written."""
        known = working_set.WorkingSet(((60, 60.0),))
        found = working_set.expect(20.0, known, 1.0, 1.0)
        self.assertEqual(working_set.Expected(
            rounds=2, seconds=40.0, bytes=60.0, downtime=20.0,
            converges=False), found)

    def test_no_more_than_all_memory_is_written_to(self):
        known = working_set.WorkingSet(((1, 1000.0),))
        found = working_set.expect(20.0, known, 1.0, 1.0)
        self.assertEqual(20.0, found.downtime)

    def test_what_the_limit_permits_is_sent_at_once(self):
        known = working_set.WorkingSet(((1, 0.0),))
        self.assertEqual(0, working_set.expect(
            20.0, known, 10.0, 2.0).rounds)
        self.assertEqual(1, working_set.expect(
            20.1, known, 10.0, 2.0).rounds)

    def test_a_rate_alone_would_be_wrong(self):
        """10 MiB/s at 8 MiB/s would never end; the working set is bounded."""
        self.assertLess(self.expect(8, limit=2.0).seconds, 200)
        self.assertTrue(self.expect(8, limit=2.0).converges)

    def test_more_bandwidth_is_never_worse(self):
        found = [self.expect(rate, limit=0.01) for rate in (5, 10, 20, 80)]
        downtimes = [one.downtime for one in found]
        self.assertEqual(sorted(downtimes, reverse=True), downtimes)
