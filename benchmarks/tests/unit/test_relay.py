# SPDX-License-Identifier: Apache-2.0
import socket
import time

from benchmarks import relay
from nova_dedup_migrate.tests import base


class RelayTest(base.TestCase):

    delay = 0.0

    def setUp(self):
        super().setUp()
        directory = self.temporary_dir()
        self.server = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.server.close)
        self.server.bind(str(directory / 'real'))
        self.server.listen()
        self.path = directory / 'link'
        self.relay = relay.Relay(self.path, directory / 'real',
                                 delay=self.delay)
        self.addCleanup(self.relay.close)

    def pair(self):
        near = socket.socket(socket.AF_UNIX)
        self.addCleanup(near.close)
        near.connect(str(self.path))
        far, _ = self.server.accept()
        self.addCleanup(far.close)
        return near, far

    def test_counts_each_way(self):
        near, far = self.pair()
        near.sendall(b'x' * 100_000)
        near.shutdown(socket.SHUT_WR)
        with far.makefile('rb') as stream:
            self.assertEqual(100_000, len(stream.read()))
        far.sendall(b'ok')
        self.assertEqual(b'ok', near.recv(10))
        self.eventually(lambda: self.relay.back_bytes == 2, 'count')
        self.assertEqual(100_000, self.relay.forward_bytes)

    def test_adds_up_connections(self):
        for _ in range(3):
            near, far = self.pair()
            near.sendall(b'abc')
            self.assertEqual(b'abc', far.recv(10))
        self.eventually(lambda: self.relay.forward_bytes == 9, 'count')

    def test_end_of_one_side_reaches_the_other(self):
        near, far = self.pair()
        far.close()
        self.assertEqual(b'', near.recv(1))


class FarTest(RelayTest):
    """Everything arrives as it does without a delay, only later."""

    delay = 0.06

    def test_round_trip(self):
        near, far = self.pair()
        begun = time.monotonic()
        near.sendall(b'ping')
        self.assertEqual(b'ping', far.recv(10))
        far.sendall(b'pong')
        self.assertEqual(b'pong', near.recv(10))
        # It can be longer on a busy machine, but never shorter.
        self.assertGreaterEqual(time.monotonic() - begun, self.delay)

    def test_end_while_bytes_are_under_way(self):
        near, far = self.pair()
        near.sendall(b'x' * 1000)
        near.close()
        with far.makefile('rb') as stream:
            self.assertEqual(1000, len(stream.read()))

    def test_other_end_goes_while_bytes_are_under_way(self):
        near, far = self.pair()
        far.close()
        try:
            for _ in range(10_000):
                near.sendall(b'x' * 100_000)
        except OSError:
            return
        self.fail('the relay took everything')


class WireTest(base.TestCase):

    def test_as_many_as_the_rate(self):
        wire = relay.Wire(1000)
        self.assertAlmostEqual(0.5, wire.reserve(100.0, 500), delta=0.01)
        # Someone else has the wire for another half second.
        self.assertAlmostEqual(1.0, wire.reserve(100.0, 500), delta=0.01)
        self.assertAlmostEqual(0.9, wire.reserve(100.1, 0), delta=0.01)

    def test_idle_time_is_not_saved_up(self):
        wire = relay.Wire(1000)
        wire.reserve(100.0, 1000)
        self.assertAlmostEqual(0.5, wire.reserve(200.0, 500), delta=0.01)

    def test_short_delays_are_made_up_for(self):
        wire = relay.Wire(1000)
        wire.reserve(100.0, 1000)
        self.assertEqual(0.0, wire.reserve(101.004, 4))
        self.assertAlmostEqual(0.001, wire.reserve(101.004, 2), delta=1e-6)


class SharedTest(base.TestCase):
    """Two relays that are one link, one of them over TCP."""

    def connect(self, path, server, **given):
        found = relay.Relay(path, server.getsockname(), **given)
        self.addCleanup(found.close)
        near = socket.socket(server.family)
        self.addCleanup(near.close)
        near.connect(path if isinstance(path, tuple) else str(path))
        far, _ = server.accept()
        self.addCleanup(far.close)
        return near, far

    def server(self, family, address):
        found = socket.socket(family)
        self.addCleanup(found.close)
        found.bind(address)
        found.listen()
        return found

    def test_their_bytes_share_a_rate_each_in_its_direction(self):
        wire = relay.Wire(1_000_000)
        directory = self.temporary_dir()
        near, far = self.connect(
            directory / 'link',
            self.server(socket.AF_UNIX, str(directory / 'real')), wire=wire)
        server = self.server(socket.AF_INET, ('127.0.0.2', 0))
        there, here = self.connect(
            ('127.0.0.1', server.getsockname()[1]), server, wire=wire,
            back=True)
        begun = time.monotonic()
        near.sendall(b'x' * 100_000)
        here.sendall(b'x' * 100_000)
        for sender, receiver in ((near, far), (here, there)):
            sender.shutdown(socket.SHUT_WR)
            with receiver.makefile('rb') as stream:
                self.assertEqual(100_000, len(stream.read()))
        self.assertGreater(time.monotonic() - begun, 0.15)
        # The other directions do not wait for it.
        self.assertLess(wire.reserve(time.monotonic(), 0), 0.1)
