# SPDX-License-Identifier: Apache-2.0
"""The guest's program, compiled for and run on this machine."""

import functools
import http.server
import pathlib
import shutil
import subprocess
import tempfile
import threading
import unittest

from guests import errors
from guests import line
from guests import programs
from guests.debian import client
from guests.debian import image
from nova_dedup_migrate.tests import base

_FILES, _PAGES = 3, 75


class PipeLine(line.Line):
    """Standard input and output of a program."""

    def __init__(self, argv):
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def send(self, data):
        self._process.stdin.write(data)

    def receive(self, timeout):
        return self._process.stdout.read(1 << 16)

    def close(self):
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


class Handler(http.server.SimpleHTTPRequestHandler):
    """As the guest's server: connections stay, nothing is logged."""

    protocol_version = 'HTTP/1.1'
    timeout = 30

    def log_message(self, *args):
        pass


class ProgramTest(base.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if shutil.which('gcc') is None:
            raise unittest.SkipTest('no gcc')
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.program, cls.fill = (pathlib.Path(directory.name, name)
                                 for name in ('lab-guest', 'fill'))
        programs.compile_fill(cls.fill)
        programs.compile_program(image.PROGRAM, cls.program, '-Werror')

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.files = self.directory / 'web'
        self.files.mkdir()
        subprocess.run([self.fill, self.files, '1', str(_FILES),
                        str(_PAGES)], check=True)

    def start(self, *options):
        pipe = PipeLine([self.program, '--stdio', '--files', self.files,
                         '--count', str(_FILES),
                         '--database', self.directory,
                         '--aged', self.directory / 'aged', *options])
        self.addCleanup(pipe.close)
        self.pipe = pipe
        return client.DebianGuest(pipe)

    def serve(self):
        """Serve the files, return the options that say so."""
        server = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0), functools.partial(
                Handler, directory=str(self.files)))
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        server.daemon_threads = True
        return '--port', str(server.server_port)

    def loaded(self, guest, **given):
        """Run the web load for more than two seconds, return its series."""
        guest.start('web', **given)
        begin = guest.clock().guest
        self.eventually(lambda: guest.clock().guest > begin + 2.2,
                        'two seconds', interval=0.1)
        guest.stop('web')
        return begin, guest.series('web', since=begin - 5)

    def test_memory_and_clock(self):
        guest = self.start()
        self.assertGreater(guest.memory()['MemTotal'], 64 << 20)
        first = guest.clock()
        self.assertGreaterEqual(guest.clock().guest, first.guest)

    def test_no_servers(self):
        guest = self.start('--port', '1')
        self.assertRaises(errors.GuestFailed, guest.wait_ready, timeout=-1)
        guest.start('web', clients=1)
        self.eventually(lambda: guest.window('web', 0, 1e9).errors, 'errors')
        guest.stop('web')

    def test_warm_and_verify(self):
        guest = self.start()
        size = _FILES * _PAGES << 12
        self.assertEqual(size, guest.warm('web'))
        self.assertEqual(client.Verification(size, 0), guest.verify())

    def test_a_wrong_byte_is_found_and_named(self):
        with open(self.files / 'f00002', 'r+b') as file:
            file.seek(40 * 4096 + 7)
            byte = file.read(1)[0] ^ 1
            file.seek(-1, 1)
            file.write(bytes([byte]))
        (self.files / 'f00001').unlink()
        verified = self.start().verify()
        self.assertEqual((1 + _PAGES, 'f00001, page 0'),
                         (verified.errors, verified.error))

    def test_files_that_are_aged(self):
        guest = self.start()
        self.assertEqual(client.Verification(0, 0), guest.verify('aged'))
        guest.age(rounds=50, memory=1 << 20)
        files = sorted((self.directory / 'aged').iterdir())
        self.assertEqual(_FILES, len(files))
        self.assertEqual(
            client.Verification(sum(each.stat().st_size for each in files),
                                0), guest.verify('aged'))
        with open(files[1], 'r+b') as file:
            page = file.read(4096)
            file.seek(0)
            file.write(bytes([page[0] ^ 1]))
        files[2].unlink()
        verified = guest.verify('aged')
        self.assertEqual((2, 'aged file 1, page 0'),
                         (verified.errors, verified.error))

    def test_a_load_with_a_rate(self):
        guest = self.start(*self.serve())
        begin, seconds = self.loaded(guest, rate=30, clients=2)
        self.assertGreaterEqual(len(seconds), 1)
        whole = guest.window('web', begin, seconds[-1].end + 5)
        self.assertEqual(0, whole.errors)
        # no more than are due; how many there are is the machine's affair
        self.assertTrue(1 <= whole.requests <= 31 * (
            guest.clock().guest - begin), whole)
        self.assertEqual(whole.requests * _PAGES << 12, whole.bytes)
        self.assertTrue(0 < whole.p50 <= whole.p99 <= whole.worst, whole)
        for second in seconds:
            self.assertEqual(second.begin + 1, second.end)
            self.assertEqual(second, guest.window('web', second.begin,
                                                  second.end))

    def test_what_is_late_was_due_earlier(self):
        guest = self.start(*self.serve())
        # far more than the server can answer
        begin, seconds = self.loaded(guest, rate=50_000, clients=1)
        whole = guest.window('web', begin - 5, begin + 60)
        self.assertEqual(whole.requests, whole.due)
        self.assertGreater(seconds[-1].requests, 0)
        self.assertEqual(0, seconds[-1].due)

    def test_wrong_content_is_an_error(self):
        for path in self.files.iterdir():
            path.write_bytes(bytes(_PAGES << 12))
        guest = self.start(*self.serve())
        begin, seconds = self.loaded(guest, rate=20)
        whole = guest.window('web', begin, begin + 60)
        self.assertEqual(0, whole.requests)
        self.assertGreater(whole.errors, 0)

    def test_starting_again_ends_what_runs(self):
        guest = self.start(*self.serve())
        guest.start('web', rate=1)
        guest.start('web', rate=1, clients=3)
        guest.stop('web')
        guest.stop('web')

    def test_no_such_order(self):
        guest = self.start()
        for order in 'dance', 'start', 'start files', 'verify', 'x ' * 60:
            self.assertRaises(errors.GuestFailed, guest._order, order, 30)
        self.assertRaises(errors.GuestFailed, guest.start, 'web', clients=17)

    def test_noise(self):
        guest = self.start()
        self.pipe.send(b'x' * 5000 + b'\n\n\0\xff\nping\nping id=\nping id=x'
                       b'\nseries id=7\n')
        self.assertGreater(guest.clock().guest, 0)

    def test_a_change_is_made_once(self):
        guest = self.start()
        self.pipe.send(b'verify files id=5\n')
        first = self.pipe.receive(30)
        for path in self.files.iterdir():
            path.unlink()
        self.pipe.send(b'verify files id=5\n')
        self.assertEqual(first, self.pipe.receive(30))
        self.assertGreater(guest.verify().errors, 0)
