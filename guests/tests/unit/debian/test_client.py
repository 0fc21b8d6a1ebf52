# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import socket
import threading
import time
from unittest import mock

from guests import errors
from guests import line
from guests.debian import client
from nova_dedup_migrate.tests import base

_SECOND = {'from_ms': 5000, 'to_ms': 6000, 'bytes': 3_000_000,
           'requests': 10, 'errors': 1, 'due': 9, 'p50_us': 2500,
           'p99_us': 40_000, 'max_us': 50_000}


class FakeGuest:
    """Answers what it is told to, at the other end of a socket.

    :param answer: a function of (words, id) that returns messages
    """

    def __init__(self, path, answer):
        self.orders = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        peer, _ = self._listener.accept()
        with peer, peer.makefile('r') as lines:
            for text in lines:
                words, number = re.fullmatch(r'(.*) id=(\d+)\n',
                                             text).groups()
                self.orders.append(words)
                for message in self._answer(words, int(number)):
                    if not isinstance(message, bytes):
                        message = json.dumps(message).encode() + b'\n'
                    peer.sendall(message)

    def end(self):
        self._listener.close()
        self._thread.join()


class ClientCase(base.TestCase):

    def talk(self, answer):
        """Return (DebianGuest, FakeGuest)."""
        path = self.temporary_dir() / 'socket'
        fake = FakeGuest(path, answer)
        guest = client.DebianGuest(line.SocketLine(path))
        self.addCleanup(fake.end)
        self.addCleanup(guest.close)
        return guest, fake

    def replying(self, **fields):
        return self.talk(lambda words, number: [_reply(number, **fields)])


def _reply(number, **fields):
    return {'type': 'reply', 'id': number, 'ok': True, **fields}


class TestOrders(ClientCase):

    def test_words(self):
        guest, fake = self.replying(cached=1)
        guest.warm('web')
        guest.drop()
        guest.start('web', rate=2.5, clients=3)
        guest.start('db', mode='select')
        guest.stop('db')
        guest.poweroff()
        self.assertEqual(
            ['warm web', 'drop', 'start web rate=2500 clients=3',
             'start db rate=0 clients=2 mode=select', 'stop db',
             'poweroff'], fake.orders)

    def test_other_words_are_refused_here(self):
        guest, fake = self.replying()
        for call in (lambda: guest.warm('files'),
                     lambda: guest.start('all'),
                     lambda: guest.start('db', mode='both'),
                     lambda: guest.verify('web'),
                     lambda: guest.window('web', 5, 5),
                     lambda: guest.window('web', -1, 5)):
            self.assertRaises(ValueError, call)
        self.assertEqual([], fake.orders)

    def test_a_refusal_is_said(self):
        guest, _ = self.talk(lambda words, number: [
            {'type': 'reply', 'id': number, 'ok': False,
             'message': 'out of luck'}])
        error = self.assertRaises(errors.GuestFailed, guest.drop)
        self.assertIn('out of luck', str(error))

    def test_noise_and_other_answers_are_passed_over(self):
        guest, _ = self.talk(lambda words, number: [
            b'[    1.0] kernel: hello\n', _reply(number - 1, cached=7),
            b'{"type":"reply","id"\n', _reply(number, cached=8)])
        self.assertEqual(8, guest.warm())

    @mock.patch.object(client, '_AGAIN', 0.05)
    def test_an_order_is_repeated_with_its_number(self):
        seen = []

        def answer(words, number):
            seen.append(number)
            return [_reply(number)] if len(seen) == 3 else []

        guest, _ = self.talk(answer)
        guest.drop()
        self.assertEqual(1, len(set(seen)))

    def test_silence_ends(self):
        guest, _ = self.talk(lambda words, number: [])
        error = self.assertRaises(errors.GuestFailed, guest.drop, timeout=0.1)
        self.assertIn("'drop'", str(error))

    def test_what_has_gone_is_said(self):
        error = self.assertRaises(errors.GuestFailed, line.SocketLine,
                                  self.temporary_dir() / 'none')
        self.assertIn('no guest', str(error))

    def test_attach(self):
        guest, _ = self.replying(cached=1)
        path = self.temporary_dir() / 'socket'
        there = FakeGuest(path, lambda words, number: [
            _reply(number, cached=2)])
        self.addCleanup(there.end)
        self.addCleanup(guest.close)
        guest.attach(line.SocketLine(path))
        self.assertEqual(2, guest.warm())


class TestReadiness(ClientCase):

    @mock.patch.object(time, 'sleep', autospec=True)
    def test_the_servers_are_waited_for(self, sleep):
        left = [True, False, False]
        guest, _ = self.talk(lambda words, number: [
            _reply(number, ready=left.pop())])
        guest.wait_ready()
        self.assertEqual(2, sleep.call_count)

    @mock.patch.object(time, 'sleep', autospec=True)
    def test_not_for_ever(self, sleep):
        guest, _ = self.replying(ready=False)
        error = self.assertRaises(errors.GuestFailed, guest.wait_ready, -1.0)
        self.assertIn('servers', str(error))


class TestFigures(ClientCase):

    def test_clock(self):
        guest, _ = self.replying(mono_ms=12_500)
        before = time.monotonic()
        clock = guest.clock()
        self.assertEqual(12.5, clock.guest)
        self.assertTrue(before <= clock.host <= time.monotonic())
        self.assertAlmostEqual(clock.host + 2.5, clock.at_host(15))

    def test_memory(self):
        guest, _ = self.replying(MemTotal=4, Cached=2, mono_ms=7)
        self.assertEqual({'MemTotal': 4096, 'Cached': 2048},
                         guest.memory())

    def test_window(self):
        guest, fake = self.replying(**_SECOND)
        window = guest.window('web', 5, 6.5)
        self.assertEqual(['window web from=5000 to=6500'], fake.orders)
        self.assertEqual(
            (5.0, 6.0, 3_000_000, 10, 1, 9, 0.0025, 0.04, 0.05), (
                window.begin, window.end, window.bytes, window.requests,
                window.errors, window.due, window.p50, window.p99,
                window.worst))
        self.assertEqual(3.0, window.throughput)

    def series(self, seconds, *, twice=True):
        def answer(words, number):
            for second in (6, 5, 5) if twice else (6,):
                yield {'type': 'report', 'id': number, **_SECOND,
                       'from_ms': second * 1000,
                       'to_ms': second * 1000 + 1000}
            yield {'type': 'report', 'id': number + 1, **_SECOND}
            yield _reply(number, seconds=seconds)

        guest, fake = self.talk(answer)
        return guest, fake

    def test_series_is_in_order_each_second_once(self):
        guest, fake = self.series(2)
        self.assertEqual([5.0, 6.0], [
            window.begin for window in guest.series('db', 2.5)])
        self.assertEqual(['series db since=2500'], fake.orders)

    def test_a_series_with_a_gap_is_an_error(self):
        guest, _ = self.series(2, twice=False)
        error = self.assertRaises(errors.GuestFailed, guest.series, 'web')
        self.assertIn('1 arrived', str(error))

    def test_a_report_that_lacks_something_is_an_error(self):
        guest, _ = self.replying(from_ms=1, to_ms=2)
        self.assertRaises(errors.GuestFailed, guest.window, 'web', 1, 2)

    def test_verify(self):
        guest, fake = self.replying(bytes=10, errors=1, error='f00003')
        self.assertEqual(client.Verification(10, 1, 'f00003'), guest.verify())
        self.assertEqual(['verify files'], fake.orders)


class TestTerminal(base.TestCase):

    def test_both_ways(self):
        master, slave = os.openpty()
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        with line.TerminalLine(os.ttyname(slave)) as terminal:
            self.assertEqual(b'', terminal.receive(0))
            terminal.send(b'ping\n')
            self.assertEqual(b'ping\n', os.read(master, 100))
            os.write(master, b'{}\n')
            self.assertEqual(b'{}\n', terminal.receive(5))
        terminal.close()
