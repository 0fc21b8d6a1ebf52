# SPDX-License-Identifier: Apache-2.0
import json
import time

from nova_dedup_migrate.hypervisor import agent
from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests import peers


class AgentTest(base.TestCase):

    def execute(self, manners, timeout=60, command='guest-info'):
        path = self.temporary_dir() / 'port'
        peer = peers.Peer(path, manners)
        self.addCleanup(peer.close)
        with channel.SocketChannel('agent', path) as made:
            return agent.execute(made, command, {'a': 1}, timeout)

    def answering(self, *replies):
        """Return manners: a right sync, then these bytes."""
        sync = peers.GuestAgent({})

        def manners(connection):
            with connection.makefile('rb') as lines:
                connection.sendall(sync.answer(next(lines)))
                next(lines)
                for reply in replies:
                    connection.sendall(reply)
                peers.hang(connection)
        return manners

    def test_answer(self):
        made = peers.GuestAgent({'guest-info': lambda given: [given]})
        self.assertEqual([{'a': 1}], self.execute(made))

    def test_error(self):
        error = self.assertRaises(
            errors.AgentError, self.execute, peers.GuestAgent({}))
        self.assertIn('has not been found', str(error))

    def test_error_that_would_draw_on_a_terminal(self):
        reply = json.dumps({'error': {'desc': '\x1b[2J\n' + 'x' * 1000}})
        error = self.assertRaises(
            errors.AgentError, self.execute,
            self.answering(reply.encode() + b'\n'))
        self.assertNotIn('\x1b', str(error))
        self.assertLess(len(str(error)), 400)

    def test_what_was_left_over_is_dropped(self):
        made = peers.GuestAgent({'guest-info': lambda given: 'right'})

        def manners(connection):
            connection.sendall(b'"}\n{"return": "wrong"}\n\xff{"return": 1}\n'
                               b'\xffnonsense\n\xff{"error": {}}\n')
            made(connection)
        self.assertEqual('right', self.execute(manners))

    def test_silent(self):
        self.assertRaises(errors.AgentTimeout, self.execute, peers.hang, 0.2)

    def test_silent_after_the_sync(self):
        self.assertRaises(errors.AgentTimeout, self.execute,
                          self.answering(), 0.2)

    def test_hangs_up(self):
        self.assertRaises(errors.AgentUnavailable, self.execute,
                          peers.hang_up)

    def test_floods(self):
        begun = time.monotonic()
        self.assertRaises(errors.AgentTimeout, self.execute, peers.flood, 1)
        # neither waited for without end nor kept
        self.assertGreater(time.monotonic() - begun, 0.9)

    def test_a_line_without_end(self):
        self.assertRaises(errors.MalformedReply, self.execute,
                          self.answering(b'x' * (agent.MAX_REPLY + 2)))

    def test_no_reply(self):
        for reply in (b'', b'null', b'7', b'[]', b'{}', b'{"error": 1}',
                      b'[' * 100000, b'{"return": ', b'\xc3\x28',
                      b'\xff{"x": 1}'):
            self.assertRaises(errors.MalformedReply, self.execute,
                              self.answering(reply + b'\n'))

    def test_too_long_for_libvirt(self):
        self.assertRaises(errors.MalformedReply, agent.decode,
                          ' ' * (agent.MAX_REPLY + 1), 'guest-info')
