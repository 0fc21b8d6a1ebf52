# SPDX-License-Identifier: Apache-2.0
"""Both transports, over real sockets."""

import threading
import time
from unittest import mock

from nova_dedup_migrate.hypervisor import agent
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import guestagent
from nova_dedup_migrate.pagecache import listingformat as form
from nova_dedup_migrate.pagecache import port
from nova_dedup_migrate.pagecache import transport
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests import peers
from nova_dedup_migrate.tests.unit.pagecache import listings
from nova_dedup_migrate.tests.unit.pagecache import transports

HANG = transports.HANG


class SocketCase(base.TestCase):
    """A guest whose ports are sockets of a Peer."""

    def guest(self, manners):
        path = self.temporary_dir() / 'port'
        peer = peers.Peer(path, manners)
        self.addCleanup(peer.close)
        guest = mock.create_autospec(hypervisor.Guest, instance=True)
        guest.open_channel.side_effect = (
            lambda name: channel.SocketChannel(name, path))

        def run(command, arguments=None, timeout=5.0):
            with channel.SocketChannel('agent', path) as made:
                return agent.execute(made, command, arguments, timeout)
        guest.agent.side_effect = run
        return guest


class PortTest(transports.TransportSuite, SocketCase):

    def asked(self, manners, before=b''):
        def serve(connection):
            connection.sendall(before)
            data = b''
            while len(data) < 80:
                data += connection.recv(80 - len(data))
            fields = form.REQUEST_PAYLOAD.unpack(data[16:])
            for step in manners(form.Request(
                    fields[2], fields[1], fields[3], fields[4])):
                if step is HANG:
                    peers.hang(connection)
                else:
                    connection.sendall(step)
        return port.PortTransport(self.guest(serve))

    def test_skips_what_is_left_over(self):
        older = listings.small(nonce=5, skips=('older',))
        for before in (older, older[:-1], older[40:], older[:100],
                       b'NPCL' * 40, bytes(200000), older * 3):
            made = self.asked(lambda request: [transports.right(request)],
                              before).request(transports.LIMITS,
                                          time.monotonic() + 60)
            self.assertTrue(made.complete)
            self.assertEqual([], made.skipped)

    def test_skips_byte_by_byte(self):
        older = listings.small(nonce=5)

        def manners(request):
            data = older + transports.right(request)
            return [data[at:at + 1] for at in range(len(data))]
        self.assertTrue(self.ask(manners).complete)

    def test_answers_another_request(self):
        self.assertRaises(errors.NoAnswer, self.ask,
                          lambda request: [listings.small(nonce=5)])

    def test_floods(self):
        self.assertRaises(
            errors.NoAnswer, port.PortTransport(self.guest(
                peers.flood)).request,
            transports.LIMITS, time.monotonic() + 0.5)

    def test_obstacle(self):
        made = port.PortTransport(self.guest(peers.hang))
        for state, reason in ((channel.MISSING, 'the guest has no p'),
                              (channel.CLOSED, 'no page-cache lister runs'),
                              (channel.OPEN, '')):
            made._guest.channel_state.return_value = state
            self.assertIn(reason, made.obstacle())
        self.assertEqual('', made.obstacle())

    def test_taken_by_another(self):
        made = port.PortTransport(self.guest(peers.hang))
        made._guest.open_channel.side_effect = (
            hypervisor_errors.ChannelUnavailable(channel='x', reason='y'))
        self.assertRaises(errors.GuestUnreachable, made.request,
                          transports.LIMITS, time.monotonic() + 60)


class System:
    """What qemu-guest-agent runs in its guest: one program and its file.

    :ivar running: pids
    """

    def __init__(self, manners):
        self._manners = manners
        self._data = bytearray()
        self._at = 0
        self._lister = None
        self._hangs = threading.Event()
        self.running = set()
        self.open = set()
        self.status = {'exitcode': 1, 'err-data': peers.encoded(
            b'sh: 1: /usr/sbin/page-cache-lister: not found\n')}
        self.agent = peers.GuestAgent({
            'guest-exec': self.execute, 'guest-exec-status': self.look,
            'guest-file-open': self.open_file,
            'guest-file-read': self.read_file,
            'guest-file-close': self.close_file})

    def execute(self, arguments):
        shell, script, name, *rest = arguments['arg']
        if 'kill' in script and len(rest) == 1:
            self.running.discard(int(rest[0]))
            return {'pid': 78}
        options = dict(zip(rest[2::2], map(int, rest[3::2]), strict=True))
        self._lister = iter(self._manners(form.Request(
            0, options['--time'], options['--memory'],
            options['--extents'])))
        self.running.add(77)
        return {'pid': 77}

    def look(self, arguments):
        if arguments['pid'] in self.running:
            return {'exited': False}
        return {'exited': True, **self.status}

    def open_file(self, arguments):
        if arguments['path'] != '/proc/77/fd/9' or not self.running:
            raise peers.agent_error('No such file or directory')
        self.open.add(1000)
        return 1000

    def _write(self):
        """Let the program go on."""
        step = next(self._lister, None)
        if step is None:
            # what it wrote is still held for a while, nothing is not
            self.running.clear()
        elif step is HANG:
            self._lister = iter([HANG])
        else:
            self._data += step

    def read_file(self, arguments):
        if self._at == len(self._data):
            self._write()
        data = bytes(self._data[self._at:self._at + arguments['count']])
        self._at += len(data)
        return {'count': len(data), 'buf-b64': peers.encoded(data),
                'eof': not data}

    def close_file(self, arguments):
        self.open.remove(arguments['handle'])
        return {}


class AgentTest(transports.TransportSuite, SocketCase):

    def asked(self, manners):
        self.system = System(manners)
        return guestagent.AgentTransport(self.guest(self.system.agent))

    def test_nothing_stays_behind(self):
        self.ask(lambda request: [transports.right(request), HANG])
        self.assertEqual((set(), set()),
                         (self.system.running, self.system.open))

    def replaced(self, seconds=0.3, **handlers):
        """Use an agent with other handlers for some commands."""
        made = self.asked(lambda request: [transports.right(request), HANG])
        for name, handler in handlers.items():
            name = name.replace('_', '-')
            if handler is None:
                del self.system.agent.handlers[name]
            else:
                self.system.agent.handlers[name] = handler
        return made.request(transports.LIMITS, time.monotonic() + seconds)

    def test_not_installed(self):
        error = self.assertRaises(errors.NoAnswer, self.ask,
                                  lambda request: [])
        self.assertIn('page-cache-lister: not found', str(error))

    def test_not_allowed(self):
        for name in ('guest_exec', 'guest_file_open'):
            error = self.assertRaises(errors.PageCacheError, self.replaced,
                                      60, **{name: None})
            self.assertIn('has not been found', str(error))

    def hostile(self, name, *replies):
        for reply in replies:
            def answer(arguments, reply=reply):
                if isinstance(reply, bytes):
                    raise peers.AgentSays(reply + b'\n')
                return reply
            error = self.assertRaises(
                errors.PageCacheError, self.replaced, **{name: answer})
            self.assertTrue(str(error))

    def test_lies_about_processes(self):
        self.hostile('guest_exec', {}, [], None, 7, {'pid': -1},
                     {'pid': '77'}, {'pid': 1 << 63}, {'pid': True},
                     b'nonsense', b'{}', {'pid': 0}, {'pid': 12})

    def test_lies_about_its_file(self):
        self.hostile('guest_file_open', {}, None, '1000', -1)

    def test_lies_about_contents(self):
        self.hostile(
            'guest_file_read', {}, None, {'buf-b64': None},
            {'buf-b64': 7}, {'buf-b64': '***'}, {'buf-b64': '='},
            {'buf-b64': '\u00fc'}, {'count': 1 << 40, 'buf-b64': ''},
            {'buf-b64': peers.encoded(bytes((2 << 20) + 1))},
            {'buf-b64': peers.encoded(bytes(100))},
            b'x' * (agent.MAX_REPLY + 1))

    def test_lies_about_the_end(self):
        for reply in ({}, None, {'exited': 'no'}, {'exited': True},
                      {'exited': True, 'exitcode': [1] * 1000,
                       'err-data': '***'},
                      {'exited': True, 'exitcode': 1,
                       'err-data': peers.encoded(b'\x1b[2J' * 1000)}):
            error = self.assertRaises(
                errors.PageCacheError, self.replaced,
                guest_exec_status=lambda given, reply=reply: reply,
                guest_file_read=lambda given: {'buf-b64': ''})
            self.assertNotIn('\x1b', str(error))
            self.assertLess(len(str(error)), 600)

    def test_hangs_or_floods(self):
        for manners in (peers.hang, peers.flood, peers.hang_up):
            made = guestagent.AgentTransport(self.guest(manners))
            begun = time.monotonic()
            self.assertRaises(errors.PageCacheError, made.request,
                              transports.LIMITS, begun + 0.3)

    def test_an_agent_that_hangs_is_not_asked_again(self):
        made = self.asked(lambda request: [transports.right(request)])
        guest = made._guest
        answer, calls = guest.agent.side_effect, []

        def hang(command, arguments=None, timeout=5.0):
            calls.append(command)
            if command == 'guest-file-read':
                raise hypervisor_errors.AgentTimeout(command=command,
                                                     seconds=timeout)
            return answer(command, arguments, timeout)
        guest.agent.side_effect = hang
        self.assertRaises(errors.NoAnswer, made.request, transports.LIMITS,
                          time.monotonic() + 60)
        self.assertEqual('guest-file-read', calls[-1])

    def test_obstacle(self):
        made = self.asked(lambda request: [])
        for state, reason in ((channel.MISSING, 'the guest has no p'),
                              (channel.CLOSED, 'does not run'),
                              (channel.OPEN, '')):
            made._guest.channel_state.return_value = state
            self.assertIn(reason, made.obstacle())
        self.assertEqual('', made.obstacle())


class LimitsTest(base.TestCase):

    def test_bounds(self):
        request = transport.Limits(memory_kib=1, extents=0).request(7, 0.0)
        self.assertEqual((7, 1, 4096, 1), (
            request.nonce, request.time_ms, request.memory_kib,
            request.extents))
        request = transport.Limits(
            memory_kib=1 << 40, extents=1 << 40).request(1, 1e9)
        self.assertEqual((600000, (1 << 32) - 1, 1 << 24), (
            request.time_ms, request.memory_kib, request.extents))
