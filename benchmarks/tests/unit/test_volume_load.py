# SPDX-License-Identifier: Apache-2.0
import contextlib
import itertools
import time

from benchmarks import volume_load
from nova_dedup_migrate.tests import base


class VolumeLoadTest(base.TestCase):

    def load(self, request, rate, **given):
        found = volume_load.Load(
            lambda: contextlib.nullcontext(request), 4096, rate, **given)
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

    def test_it_waits(self):
        """It ends without a request if it never began."""
        def request(write, chance):
            raise SystemExit(1)

        load = self.load(request, 1000, waits=True)
        load.stop()
        self.assertEqual((0, 0), (load.count().requests,
                                  load._process.exitcode))

    def test_few_requests_are_writes(self):
        def request(write, chance):
            with written.get_lock():
                written.value += write
            if next(numbers) == 25:
                done.set()

        written, done = (volume_load._FORK.Value('i', 0),
                         volume_load._FORK.Event())
        numbers = itertools.count(1)
        load = self.load(request, 1000, writes=5, waits=True)
        load.begin()
        self.assertTrue(done.wait(60))
        load.stop()
        count = load.count()
        self.assertEqual(count.requests // 5, written.value)
        self.assertEqual((count.requests - count.requests // 5) * 4096,
                         count.read)
        self.assertGreater(load.processor, 0)

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
