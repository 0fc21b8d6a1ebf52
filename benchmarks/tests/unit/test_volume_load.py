# SPDX-License-Identifier: Apache-2.0
import contextlib
import time

from benchmarks import volume_load
from nova_dedup_migrate.tests import base


class VolumeLoadTest(base.TestCase):

    def load(self, request, rate):
        found = volume_load.Load(
            lambda: contextlib.nullcontext(request), 4096, rate)
        self.addCleanup(found._process.kill)
        return found

    def test_requests_are_counted_and_paced(self):
        load = self.load(lambda write, chance: None, 100)
        first = load.count()
        time.sleep(0.5)
        last = load.count()
        load.stop()
        done = last.requests - first.requests
        self.assertTrue(1 <= done <= 52, done)
        self.assertEqual((last.requests + 1) // 2 * 4096, last.read)

    def test_a_request_that_fails_is_reported(self):
        def request(write, chance):
            if write:
                # Without a traceback on the terminal.
                raise SystemExit(1)

        load = self.load(request, 1000)
        load._process.join(10)
        error = self.assertRaises(RuntimeError, load.stop)
        self.assertIn('after 1 requests', str(error))

    def test_share(self):
        def span(seconds, requests):
            return (volume_load.Count(3.0, 7, 0),
                    volume_load.Count(3.0 + seconds, 7 + requests, 0))

        self.assertEqual(0.5, volume_load.share(span(10, 1000),
                                                span(2, 100)))
