# SPDX-License-Identifier: Apache-2.0
import os
from unittest import mock

import testtools

from lab import counters
from lab import errors
from lab.counters import Counters
from lab.hosts import process


class TestBusy(testtools.TestCase):

    def test_idle_rate_is_taken_off(self):
        idle = (Counters(0, 100, 1000), Counters(10, 120, 1100))
        found = counters.busy(idle, Counters(20, 150, 1200),
                              Counters(25, 200, 1500))
        self.assertEqual((40.0, 250.0), found)


class TestRead(testtools.TestCase):

    def read(self, *answers):
        cloud = mock.Mock()
        cloud.control.run.side_effect = [
            mock.Mock(stdout=text) for text in answers]
        return counters.read(cloud)

    def test_both(self):
        found = self.read('1234\n', 'Questions\t77\n')
        self.assertEqual((1234, 77), (found.messages, found.queries))

    def test_neither(self):
        error = self.assertRaises(errors.LabError, self.read, 'undef', '')
        self.assertIn('undef', str(error))


class TestThreads(testtools.TestCase):

    def test_of_this_process(self):
        ours = process.Process.of(os.getpid())
        with counters.ThreadSampler({'x': ours}) as sampler:
            # the sampler's own is one of them
            self.assertGreaterEqual(counters.threads(ours), 2)
        self.assertGreaterEqual(sampler.most['x'], 2)

    def test_gone(self):
        self.assertEqual(0, counters.threads(process.Process(1 << 22, 1)))
