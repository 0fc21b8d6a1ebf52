# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.planner import disks
from nova_dedup_migrate.tests import base

GIB = 1 << 30
#: 100 Mbit/s.
SLOW = 12.5e6


class DecideTest(base.TestCase):

    def decide(self, found=128, sampled=128, data=GIB, link=SLOW, **given):
        return disks.decide(
            disks.DiskFacts(data, sampled, found, link_rate=link,
                            write_rate=given.pop('written', None),
                            read_rate=given.pop('read', None),
                            current=given.pop('current', 0.0)),
            0.05, **given)

    def test_all_is_near(self):
        found = self.decide()
        self.assertTrue(found.build)
        self.assertEqual('', found.reason)
        self.assertLess(found.seconds, found.stock / 5)

    def test_nothing_is_near(self):
        """An overlay whose content is nowhere else."""
        found = self.decide(found=0)
        self.assertFalse(found.build)
        self.assertGreater(found.seconds, found.stock)
        self.assertIn('0 % of its data', found.reason)

    def test_fast_link(self):
        """Reading the disk would take longer than sending it."""
        self.assertFalse(self.decide(link=1e9).build)
        self.assertTrue(self.decide(link=SLOW).build)

    def test_the_more_is_near_the_better(self):
        times = [self.decide(found=found).seconds
                 for found in range(0, 129, 16)]
        self.assertEqual(sorted(times, reverse=True), times)

    def test_a_guest_that_writes(self):
        self.assertGreater(self.decide(written=1e6).seconds,
                           self.decide().seconds)
        # never more than the whole disk twice
        self.assertLess(self.decide(written=1e15).seconds,
                        2 * self.decide().stock + 20)

    def test_replica(self):
        """What is current is neither read nor sent."""
        self.assertFalse(self.decide(read=SLOW).build)
        self.assertTrue(self.decide(read=SLOW, current=0.99).build)
        self.assertTrue(self.decide(found=0, current=0.9).build)

    def test_slow_reading(self):
        self.assertFalse(self.decide(read=SLOW).build)

    def test_little_data(self):
        found = self.decide(data=1 << 20)
        self.assertFalse(found.build)
        self.assertIn('1 MB of data', found.reason)

    def test_no_sample(self):
        self.assertIn('sampled', self.decide(0, 0).reason)
        self.assertIn('sampled', self.decide(2, 2).reason)

    def test_always(self):
        found = self.decide(found=0, always=True)
        self.assertTrue(found.build)
        self.assertEqual('', found.reason)

    def test_unknown_link(self):
        self.assertEqual(GIB / disks.LINK_RATE,
                         self.decide(link=None).stock)

    def test_worked_example(self):
        """1.5 GB, two thirds of which is near, over 10 MB/s.

        150 s ordinary.  Building takes 2 s and 10 s for reading all or 10 s
        for writing 1 GB; 0.5 GB, and what the guest has written, are sent
        then: 1 MB/s for 12 s dirties 48 MB, 32 MB of them are near.
        """
        found = disks.decide(disks.DiskFacts(
            data=1.5e9, sampled=12, found=8, link_rate=1e7,
            write_rate=1e6), 0.05)
        self.assertEqual(150.0, found.stock)
        self.assertAlmostEqual(12 + 50 + 3.2, found.seconds)
        # half of it is current: reading the rest takes 5 s
        found = disks.decide(disks.DiskFacts(
            data=1.5e9, sampled=12, found=0, link_rate=1e7, current=0.5),
            0.05)
        self.assertAlmostEqual(2 + 7.5 + 75, found.seconds)
        # a slower limit of reading counts, a faster one does not
        for rate, seconds in ((7.5e7, 20.0), (1e12, 10.0)):
            found = disks.decide(disks.DiskFacts(
                data=1.5e9, sampled=12, found=0, link_rate=1e7,
                read_rate=rate), 0.05)
            self.assertAlmostEqual(2 + seconds + 150, found.seconds)

    def test_near_and_slow(self):
        """1.5 GB, all of it in an image store that sends 20 MB/s."""
        for rate, seconds in ((2e7, 75.0), (1e12, 15.0), (None, 15.0)):
            found = disks.decide(disks.DiskFacts(
                data=1.5e9, sampled=32, found=32, link_rate=1e7,
                fetch_rate=rate), 0.05)
            self.assertAlmostEqual(2 + seconds, found.seconds)
            self.assertTrue(found.build)
        # it is as slow as the link
        self.assertFalse(disks.decide(disks.DiskFacts(
            data=1.5e9, sampled=32, found=32, link_rate=1e7,
            fetch_rate=1e7), 0.05).build)

    def test_lost(self):
        """1.5 GB over 10 MB/s: 150 s, of which 15 s may be lost."""
        found = disks.decide(disks.DiskFacts(
            data=1.5e9, sampled=12, found=12, link_rate=1e7), 0.05)
        self.assertEqual((0.1, 8.0), (disks.MARGIN, disks.LEAST))
        self.assertAlmostEqual(165.0, found.longest)
        for seconds, proven, lost in (
                (15, 0, 0), (20, 0, 5), (20, 5e7, 0), (100, 5e8, 35),
                # no more than all is saved
                (200, 9e9, 35), (5, 9e9, 0)):
            self.assertAlmostEqual(lost, found.lost(seconds, proven))

    def test_min_gain(self):
        """It has to save that share, and not a second more."""
        known = disks.DiskFacts(data=1.5e9, sampled=12, found=8,
                                link_rate=1e7)
        seconds = disks.decide(known, 0.0).seconds
        self.assertAlmostEqual(62.0, seconds)
        self.assertTrue(disks.decide(known, 0.58).build)
        self.assertFalse(disks.decide(known, 0.59).build)

    def test_seconds_that_are_not_worth_it(self):
        """100 MB over 10 MB/s: 10 s, of which five are to be saved."""
        for size, built in ((7e7, False), (1e8, True)):
            found = disks.decide(disks.DiskFacts(
                data=size, sampled=12, found=12, link_rate=1e7), 0.05)
            self.assertLess(found.seconds, 0.5 * found.stock)
            self.assertEqual(built, found.build)

    def test_bounds(self):
        for data, sampled, reason in (
                (disks.LEAST_DATA, 8, ''), (disks.LEAST_DATA, 7, 'sampled'),
                (disks.LEAST_DATA - 1, 8, 'MB of data')):
            found = disks.decide(disks.DiskFacts(
                data, sampled, sampled, link_rate=1e5), 0.05)
            self.assertIn(reason, found.reason)
            self.assertEqual(not reason, found.build)
        self.assertEqual(67108864, disks.LEAST_DATA)
        self.assertEqual((150e6, 100e6, 117e6), (
            disks.READ_RATE, disks.BUILD_RATE, disks.LINK_RATE))
