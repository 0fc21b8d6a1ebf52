# SPDX-License-Identifier: Apache-2.0
import socket

from benchmarks import relay
from nova_dedup_migrate.tests import base


class RelayTest(base.TestCase):

    def setUp(self):
        super().setUp()
        directory = self.temporary_dir()
        self.server = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.server.close)
        self.server.bind(str(directory / 'real'))
        self.server.listen()
        self.path = directory / 'link'
        self.relay = relay.Relay(self.path, directory / 'real')
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
