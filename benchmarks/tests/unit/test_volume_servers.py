# SPDX-License-Identifier: Apache-2.0
import socket

from benchmarks import volume_servers
from nova_dedup_migrate.tests import base


class LinkTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.link = volume_servers.Link(10_000_000)
        self.addCleanup(self.link.stop)

    def listen(self, family, address):
        found = socket.socket(family)
        self.addCleanup(found.close)
        found.bind(address)
        found.listen()
        return found

    def pair(self, family, address, listener):
        near = socket.socket(family)
        self.addCleanup(near.close)
        near.connect(address)
        far, _ = listener.accept()
        self.addCleanup(far.close)
        return near, far

    def test_bytes_towards_the_target_are_counted(self):
        address = str(self.temporary_dir() / 'nbd')
        target = self.listen(socket.AF_UNIX, address)
        near, far = self.pair(socket.AF_UNIX, self.link.target(address),
                              target)
        near.sendall(b'x' * 1000)
        far.sendall(b'reply')
        self.assertEqual(b'reply', near.recv(10))
        self.eventually(lambda: self.link.carried() == (1000, 0), 'count')

    def test_bytes_of_a_server_are_counted(self):
        server = self.listen(socket.AF_INET, (volume_servers.BEHIND, 0))
        port = server.getsockname()[1]
        self.link.server(port)
        near, far = self.pair(socket.AF_INET, (volume_servers.BEFORE, port),
                              server)
        near.sendall(b'request')
        self.assertEqual(b'request', far.recv(10))
        far.sendall(b'x' * 1000)
        self.eventually(lambda: self.link.carried() == (0, 1000), 'count')
