# SPDX-License-Identifier: Apache-2.0
"""Measuring a link, over the loopback."""

import socket
import sys
import threading
from unittest import mock

from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import link
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.tests import base

ANY = range(0, 1)


def request(seconds=0.2, limit=4 << 20):
    return objects.DedupLinkRequest(source='compute1', seconds=seconds,
                                    bytes=limit)


def measure(offer, wanted=None):
    return link.measure(offer, wanted or request(30.0, 1 << 40),
                        socket.AF_INET6 if ':' in offer.address
                        else socket.AF_INET, (offer.address, offer.port))


class LinkTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.receiver = link.Receiver('127.0.0.1', ANY)
        self.addCleanup(self.wait)

    def wait(self):
        self.eventually(lambda: not self.receiver._busy.locked(),
                        'the receiver has ended')

    def connect(self, offer):
        connection = socket.create_connection((offer.address, offer.port),
                                              10.0)
        self.addCleanup(connection.close)
        return connection

    def test_rate(self):
        self.assertGreater(measure(self.receiver.offer(request())),
                           1e6)

    def test_time_is_up_first(self):
        offer = self.receiver.offer(request(0.05, 1 << 40))
        self.assertEqual(link.MAX_BYTES, offer.bytes)
        self.assertGreater(measure(offer), 1e6)

    def test_ipv6(self):
        if not socket.has_ipv6:
            self.skipTest('no IPv6 here')
        receiver = link.Receiver('::1', ANY)
        try:
            offer = receiver.offer(request())
        except errors.ProbeRefused as error:
            self.skipTest('no IPv6 here: %s' % error)
        self.assertGreater(measure(offer), 1e6)

    def test_limits_of_the_agent(self):
        offer = self.receiver.offer(request(1e9, 1 << 60))
        self.assertEqual(link.MAX_SECONDS, offer.seconds)
        self.assertEqual(link.MAX_BYTES, offer.bytes)
        self.connect(offer).sendall(bytes.fromhex(offer.token))

    def test_stranger(self):
        offer = self.receiver.offer(request())
        stranger = self.connect(offer)
        stranger.sendall(bytes(32))
        self.assertEqual(b'', stranger.recv(1))
        self.assertGreater(measure(offer), 1e6)

    def test_it_listens_for_one(self):
        offer = self.receiver.offer(request())
        measure(offer)
        self.wait()
        self.assertRaises(OSError, measure, offer)

    def test_nobody_comes(self):
        with mock.patch.object(link, 'PATIENCE', 0.01):
            self.receiver.offer(request())
            self.wait()
        self.assertGreater(measure(self.receiver.offer(request())),
                           1e6)

    def test_one_at_a_time(self):
        offer = self.receiver.offer(request())
        with mock.patch.object(link, 'PATIENCE', 0.01):
            self.assertRaises(errors.ProbeRefused, self.receiver.offer,
                              request())
        measure(offer)

    def test_no_free_port(self):
        taken = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(taken.close)
        port = taken.getsockname()[1]
        receiver = link.Receiver('127.0.0.1', range(port, port + 1))
        error = self.assertRaises(errors.ProbeRefused, receiver.offer,
                                  request())
        self.assertIn(str(port), str(error))
        self.assertFalse(receiver._busy.locked())

    def test_no_such_address(self):
        receiver = link.Receiver('no.such.host.invalid', ANY)
        self.assertRaises(errors.ProbeRefused, receiver.offer, request())
        self.assertFalse(receiver._busy.locked())

    def _destination(self, answer):
        """Serve one connection with a fixed answer; return an offer."""
        listener = socket.create_server(('127.0.0.1', 0))

        def serve():
            with listener:
                connection, _ = listener.accept()
            with connection:
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                try:
                    while connection.recv(1 << 20):
                        pass
                except ConnectionResetError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)
        return objects.DedupLinkOffer(
            address='127.0.0.1', port=listener.getsockname()[1],
            token='0' * 64, seconds=0.05, bytes=1 << 20)

    def test_limits_of_the_source(self):
        """A destination that wants more than was requested gets no more."""
        offer = self.receiver.offer(request(10.0, 1 << 40))
        offer.seconds, offer.bytes = link.MAX_SECONDS, link.MAX_BYTES
        sent = []
        push = link._push

        def spy(connection, deadline, limit):
            sent.append((deadline - link.time.monotonic(), limit))
            push(connection, deadline, limit)

        with mock.patch.object(link, '_push', spy), \
                mock.patch.object(link, '_ROUND_TRIPS', 0):
            self.assertGreater(measure(offer, request(0.05, 1 << 10)), 0)
        (seconds, limit), = sent
        self.assertEqual(1 << 10, limit)
        self.assertLessEqual(seconds, 0.05)

    def test_migration_is_under_way(self):
        receiver = link.Receiver('127.0.0.1', ANY, 'compute2', lambda: True)
        error = self.assertRaises(errors.LinkInUse, receiver.offer,
                                  request())
        self.assertIn('compute2', str(error))
        self.assertFalse(receiver._busy.locked())

    def test_nothing_arrived(self):
        self.assertIsNone(measure(self._destination(bytes(8))))

    def test_impossible_rate(self):
        self.assertRaises(ConnectionError, measure,
                          self._destination(b'\xff' * 8))

    def test_short_answer(self):
        self.assertRaises(ConnectionError, measure,
                          self._destination(b'abc'))

    def test_hosts_that_are_far_apart(self):
        """Slow start would be over half of the time, or all of it."""
        connection = mock.create_autospec(socket.socket, instance=True)
        for milliseconds, expected in ((0, 0.5), (1, 0.5), (60, 1.44),
                                       (4_000_000, link.MAX_SECONDS)):
            connection.getsockopt.return_value = (
                bytes(68) + (1000 * milliseconds).to_bytes(4, sys.byteorder)
                + bytes(32))
            self.assertEqual(expected, link._long_enough(connection, 0.5))

    def test_round_trip_of_tcp(self):
        """It is where the kernel has it: on the loopback almost nothing."""
        connection = self.connect(self.receiver.offer(request()))
        self.assertLess(0.0, link._long_enough(connection, 0.0))
        self.assertLess(link._long_enough(connection, 0.0), 1.0)

    def test_second_half_counts(self):
        """A buffer on the way swallows the first megabyte at once."""
        times = iter([0.0, 0.0, 0.001, 0.001, 0.6, 0.6, 1.0, 1.0, 2.0, 2.0,
                      2.0])
        counts = iter([1000000, 500, 400, 1000])
        connection = mock.create_autospec(socket.socket, instance=True)
        connection.recv_into.side_effect = lambda buffer: next(counts)
        with mock.patch.object(link.time, 'monotonic', autospec=True,
                               side_effect=lambda: next(times)):
            rate = link._count(connection, 2.0, 1 << 30)
        self.assertEqual(1000, rate)
