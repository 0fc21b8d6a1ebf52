# SPDX-License-Identifier: Apache-2.0
"""Reading a disk beside its guest."""

import threading

from nova_dedup_migrate.storage import pacing
from nova_dedup_migrate.tests import base

MIB = 1 << 20


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self):
        self.now = 100.0
        self.waited = []

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.waited.append(seconds)
        self.now += seconds


class PacerTest(base.TestCase):

    def pacer(self, *latencies, limit=float('inf')):
        """Return a Pacer whose guest has these latencies, then the last."""
        found = list(latencies)
        self.clock = Clock()
        return pacing.Pacer(
            lambda: found.pop(0) if len(found) > 1 else found[0], limit,
            aborted=self.clock, clock=self.clock)

    def sample(self, pacer, times=1):
        """Have so many intervals pass, and return the rate in MiB/s."""
        for _ in range(times):
            self.clock.now += pacing.INTERVAL
            pacer(0)
        return pacer.rate / MIB

    def test_waits_for_what_was_read(self):
        pacer = self.pacer(0.001)
        pacer(8 * MIB)
        self.assertEqual([], self.clock.waited)
        # 8 of 32 MiB/s
        pacer(4 * MIB)
        pacer(1)
        self.assertEqual([0.25, 0.125], self.clock.waited)

    def test_what_was_not_used_is_not_saved_up(self):
        pacer = self.pacer(0.001)
        self.clock.now += 0.4
        pacer(8 * MIB)
        pacer(1)
        self.assertEqual([0.25], self.clock.waited)

    def test_grows_while_the_guest_does_not_notice(self):
        pacer = self.pacer(0.001)
        self.assertEqual(40.0, self.sample(pacer))
        self.assertEqual(50.0, self.sample(pacer))

    def test_nothing_changes_within_an_interval(self):
        pacer = self.pacer(0.001)
        self.clock.now += pacing.INTERVAL - 0.01
        pacer(0)
        self.assertEqual(32 * MIB, pacer.rate)

    def test_halved_when_the_guest_is_slowed(self):
        """Twenty per cent more is borne, compared with before."""
        pacer = self.pacer(0.001, 0.0012, 0.00121, 0.0012)
        self.assertEqual(40.0, self.sample(pacer))
        self.assertEqual(20.0, self.sample(pacer))
        self.assertEqual(25.0, self.sample(pacer))

    def test_goes_on_slowly_at_the_least(self):
        pacer = self.pacer(0.001, 1.0)
        self.assertEqual(4.0, self.sample(pacer, 10))

    def test_limit(self):
        pacer = self.pacer(0.001, limit=33 * MIB)
        self.assertEqual(33.0, self.sample(pacer))
        self.assertEqual(33.0, self.sample(pacer))
        # of less than the least: also if the guest is slowed
        pacer = self.pacer(0.001, 1.0, limit=MIB)
        self.assertEqual(MIB, pacer.rate)
        self.assertEqual(1.0, self.sample(pacer, 3))

    def test_guest_that_was_idle(self):
        """Its first requests are what later ones are compared with."""
        pacer = self.pacer(None, None, 0.002, 0.0025, None)
        self.assertEqual(40.0, self.sample(pacer))
        self.assertEqual(50.0, self.sample(pacer))
        self.assertEqual(25.0, self.sample(pacer))
        # no requests: nothing is slowed
        self.assertEqual(31.25, self.sample(pacer))

    def test_aborted(self):
        aborted = threading.Event()
        aborted.set()
        pacer = pacing.Pacer(lambda: None, 1.0, aborted)
        pacer(1 << 30)
        # an hour of waiting, if it were not aborted
        pacer(1)
