# SPDX-License-Identifier: Apache-2.0
import time

from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests import peers


def soon(seconds=0.2):
    return time.monotonic() + seconds


def late():
    return time.monotonic() + 60


class SocketChannelTest(base.TestCase):

    def connected(self, manners):
        path = self.temporary_dir() / 'port'
        peer = peers.Peer(path, manners)
        self.addCleanup(peer.close)
        made = channel.SocketChannel('port', path)
        self.addCleanup(made.close)
        return made

    def test_there_and_back(self):
        def echo(connection):
            while data := connection.recv(1 << 16):
                connection.sendall(data)
        made = self.connected(echo)
        for size in (1, 100000):
            made.send(b'x' * size, late())
            back = b''
            while len(back) < size:
                back += made.receive(late())
            self.assertEqual(b'x' * size, back)

    def test_end(self):
        made = self.connected(peers.hang_up)
        made.send(b'x', late())
        self.assertEqual(b'', made.receive(late()))

    def test_nothing_comes(self):
        made = self.connected(peers.hang)
        error = self.assertRaises(errors.WaitTimeout, made.receive, soon())
        self.assertIn('did not come in time', str(error))

    def test_nothing_is_taken(self):
        made = self.connected(peers.flood)
        self.assertRaises(errors.WaitTimeout, made.send, bytes(1 << 24),
                          soon())

    def test_close_twice(self):
        made = self.connected(peers.hang)
        made.close()
        made.close()

    def test_broken(self):
        made = self.connected(peers.hang_up)

        def send():
            for _ in range(1000):
                made.send(b'x', late())
        self.assertRaises(errors.ChannelUnavailable, send)

    def test_no_port(self):
        self.assertRaises(errors.ChannelUnavailable, channel.SocketChannel,
                          'port', self.temporary_dir() / 'none')
