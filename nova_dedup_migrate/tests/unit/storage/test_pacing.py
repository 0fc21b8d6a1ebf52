# SPDX-License-Identifier: Apache-2.0
"""Reading a disk beside its guest."""

import random
import threading

from nova_dedup_migrate.storage import pacing
from nova_dedup_migrate.tests import base

MIB = 1 << 20


class Guest:
    """Time, and a guest that has requests in it.

    :ivar number: of requests in a second
    :ivar quiet: seconds of one while nothing is read
    :ivar reading: likewise, while something is; a function of the rate, too
    """

    def __init__(self, quiet=0.001, reading=0.001, number=10 ** 7):
        self.now = 100.0
        self.waited = []
        self.quiet, self.reading, self.number = quiet, reading, number
        self._ended = (0, 0.0)

    def clock(self):
        return self.now

    def wait(self, seconds):
        """In place of an Event."""
        self.waited.append(seconds)
        self._pass(seconds, self.quiet)

    def read(self, seconds, rate=0):
        self._pass(seconds, self.reading(rate) if callable(self.reading)
                   else self.reading)

    def _pass(self, seconds, latency):
        self.now += seconds
        count = round(seconds * self.number)
        took = (sum(latency() for _ in range(count)) if callable(latency)
                else count * latency)
        self._ended = self._ended[0] + count, self._ended[1] + took

    def requests(self):
        found, self._ended = self._ended, (0, 0.0)
        return found


class PacerTest(base.TestCase):

    def pacer(self, limit=float('inf'), **guest):
        """Return a Pacer that has seen the guest without reading."""
        self.guest = Guest(**guest)
        pacer = pacing.Pacer(self.guest.requests, limit, aborted=self.guest,
                             clock=self.guest.clock)
        pacer(0)
        self.assertEqual([pacing.INTERVAL], self.guest.waited)
        self.guest.waited.clear()
        return pacer

    def sample(self, pacer, times=1):
        """Read for so many intervals, and return the rate in MiB/s."""
        for _ in range(times):
            self.guest.read(pacing.INTERVAL, pacer.rate)
            pacer(0)
        return pacer.rate / MIB

    def test_waits_for_what_was_read(self):
        pacer = self.pacer()
        pacer(8 * MIB)
        self.assertEqual([], self.guest.waited)
        # 8 of 32 MiB/s
        pacer(4 * MIB)
        pacer(1)
        self.assertEqual([0.25, 0.125], self.guest.waited)

    def test_what_was_not_used_is_not_saved_up(self):
        pacer = self.pacer()
        self.guest.now += 0.4
        pacer(8 * MIB)
        pacer(1)
        self.assertEqual([0.25], self.guest.waited)

    def test_grows_while_the_guest_does_not_notice(self):
        pacer = self.pacer(reading=0.0012)
        self.assertEqual(40.0, self.sample(pacer))
        self.assertEqual(50.0, self.sample(pacer))
        self.assertEqual([], self.guest.waited)

    def test_nothing_changes_within_an_interval(self):
        pacer = self.pacer()
        self.guest.now += pacing.INTERVAL - 0.01
        pacer(0)
        self.assertEqual(32 * MIB, pacer.rate)

    def test_halved_when_the_guest_is_slowed(self):
        """Twenty per cent are borne; reading stops to see whose they are."""
        pacer = self.pacer(reading=0.00121)
        self.assertEqual(16.0, self.sample(pacer))
        self.assertEqual([pacing.INTERVAL], self.guest.waited)
        self.guest.reading = 0.0011
        self.assertEqual(20.0, self.sample(pacer))
        self.assertEqual([pacing.INTERVAL], self.guest.waited)

    def test_fewer_requests_have_to_take_longer(self):
        """200 of each: 1.2, and twice the root of 2 / 200."""
        for reading, rate in ((0.00139, 40.0), (0.00141, 16.0)):
            self.assertEqual(rate, self.sample(self.pacer(
                reading=reading, number=400)))

    def test_a_guest_that_has_changed(self):
        """It is as slow without reading."""
        pacer = self.pacer()
        self.guest.quiet = self.guest.reading = 0.01
        self.assertEqual(32.0, self.sample(pacer, 2))
        self.assertEqual(2, len(self.guest.waited))
        self.assertLess(32.0, self.sample(pacer, 10))

    def test_goes_on_slowly_at_the_least(self):
        pacer = self.pacer(reading=1.0)
        self.assertEqual(4.0, self.sample(pacer, 10))

    def test_limit(self):
        pacer = self.pacer(limit=33 * MIB)
        self.assertEqual(33.0, self.sample(pacer))
        self.assertEqual(33.0, self.sample(pacer))
        # of less than the least: also if the guest is slowed
        pacer = self.pacer(reading=1.0, limit=MIB)
        self.assertEqual(MIB, pacer.rate)
        self.assertEqual(1.0, self.sample(pacer, 3))

    def test_guest_that_was_idle(self):
        """Its first requests say nothing before it has some without."""
        pacer = self.pacer(number=0)
        self.assertEqual(40.0, self.sample(pacer))
        self.guest.number, self.guest.reading = 1000, 0.002
        self.assertEqual(20.0, self.sample(pacer))
        self.assertEqual([pacing.INTERVAL], self.guest.waited)

    def test_guest_with_few_requests(self):
        """None in the time without reading: nothing can be said."""
        pacer = self.pacer(number=0)
        for expected in 40.0, 50.0, 62.5:
            # One request each time that it is read.
            self.guest._ended = (1, 5.0)
            self.assertEqual(expected, self.sample(pacer))

    def test_requests_that_differ(self):
        """By much more than LIMIT; their mean is the same all the time."""
        numbers = random.Random(1)

        def latency():
            return 0.001 * numbers.lognormvariate(-0.8, 1.27)

        for number in 6, 100, 1000:
            pacer = self.pacer(200 * MIB, quiet=latency,
                               reading=lambda rate: latency, number=number)
            rates = [self.sample(pacer) for _ in range(200)]
            self.assertLess(60.0, sum(rates) / 200, number)

    def test_rate_that_the_guest_bears(self):
        """At 64 MiB/s its requests take twice as long."""
        pacer = self.pacer(reading=lambda rate: 0.001 * (
            1 + rate / (64 * MIB)))
        rates = [self.sample(pacer) for _ in range(40)][10:]
        self.assertLess(4.0, min(rates))
        # 12.8, and what it grows by before it is noticed
        self.assertLess(max(rates), 12.8 * 1.25 ** 3)

    def test_aborted(self):
        aborted = threading.Event()
        aborted.set()
        pacer = pacing.Pacer(lambda: (0, 0.0), 1.0, aborted)
        pacer(1 << 30)
        # an hour of waiting, if it were not aborted
        pacer(1)
