# SPDX-License-Identifier: Apache-2.0
"""The load from outside, against a server of the test's own."""

import http.server
import threading
import time
from unittest import mock

from guests import errors
from guests.debian import web
from nova_dedup_migrate.tests import base

_FILES, _BYTES = 5, 3000


class _Handler(http.server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'

    def do_GET(self):
        server = self.server
        server.asked.append((self.path, self.client_address[1]))
        number = int(self.path.removeprefix('/f'))
        body = server.bodies[number]
        if server.hangs.is_set():
            server.release.wait(30)
        self.send_response(server.status)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body[:server.sends])
        if server.sends is not None:
            self.close_connection = True

    def log_message(self, *_):
        pass


class TestLoad(base.TestCase):

    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0),
                                                      _Handler)
        self.server.asked = []
        self.server.bodies = [bytes([i]) * _BYTES for i in range(_FILES)]
        self.server.status, self.server.sends = 200, None
        self.server.hangs = threading.Event()
        self.server.release = threading.Event()
        thread = threading.Thread(target=self.server.serve_forever,
                                  args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.addCleanup(self.server.release.set)
        self.load = web.WebLoad('127.0.0.1', self.server.server_port,
                                _FILES, _BYTES)
        self.addCleanup(self.load.stop)

    def until(self, count):
        """Wait until so many requests have ended; all of them."""
        self.eventually(lambda: len(self.load.requests()) >= count,
                        'end of %d requests' % count)
        return self.load.requests()

    def outcomes(self, rate=500, clients=2):
        self.load.start(rate, clients)
        self.until(20)
        self.load.stop()
        return {one.outcome for one in self.load.requests()}

    def test_each_file_is_learnt(self):
        self.load.learn()
        self.assertEqual({'/f%05d' % i for i in range(_FILES)},
                         {path for path, _ in self.server.asked})

    def test_requests_are_due_at_the_rate_and_connections_stay(self):
        self.load.start(500, 2)
        found = self.until(20)
        self.load.stop()
        self.assertEqual({web.GOOD}, {one.outcome for one in found})
        self.assertEqual({_BYTES}, {one.bytes for one in found})
        steps = {round((one.due - self.load.began) * 500, 3)
                 for one in self.load.requests()}
        self.assertEqual(set(map(float, range(len(steps)))), steps)
        self.assertLessEqual(len({port for _, port in self.server.asked}), 2)
        for one in found:
            self.assertGreaterEqual(one.latency, 0)

    def test_a_byte_that_has_changed_is_wrong(self):
        self.load.learn()
        self.assertEqual({web.GOOD}, self.outcomes())
        self.server.bodies = [b'\0' * (_BYTES - 1) + b'\1'] * _FILES
        self.assertEqual({web.WRONG}, self.outcomes())

    def test_another_length_is_wrong(self):
        self.server.bodies = [b'x' * (_BYTES - 1)] * _FILES
        self.assertEqual({web.WRONG}, self.outcomes())

    def test_an_answer_that_breaks_off_has_failed(self):
        self.server.sends = 100
        self.assertEqual({web.FAILED}, self.outcomes())

    def test_an_error_has_failed(self):
        self.server.status = 503
        self.assertEqual({web.FAILED}, self.outcomes())

    def test_what_hangs_until_the_end_has_failed(self):
        self.server.hangs.set()
        with mock.patch.object(web, '_GRACE', 0.1):
            self.load.start(500, 2)
            self.eventually(lambda: len(self.server.asked) == 2, 'requests')
            self.load.stop()
        self.assertEqual([web.FAILED] * 2,
                         [one.outcome for one in self.load.requests()])

    def test_who_waits_is_late_from_when_it_was_due(self):
        self.server.hangs.set()
        self.load.start(500, 1)
        self.eventually(
            lambda: (self.server.asked
                     and time.monotonic() > self.load.began + 2 / 500),
            'time at which the second is due')
        self.server.hangs.clear()
        self.server.release.set()
        first, second = self.until(2)[:2]
        self.load.stop()
        # one connection: the second was due while the first waited
        self.assertLess(second.due, first.end)
        self.assertGreater(second.latency, first.end - second.due)

    def test_nobody_there(self):
        self.server.status = 404
        self.assertRaisesRegex(errors.GuestFailed, 'no web server',
                               self.load.learn, timeout=0)
