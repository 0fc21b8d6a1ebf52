# SPDX-License-Identifier: Apache-2.0
"""The API in uWSGI, with the configuration that is installed.

With lazy-apps, SIGTERM does not end processes that still load it.
"""

import http.client
import os
from pathlib import Path
import re
import signal
import socket
import subprocess
import sys

from nova_dedup_migrate.tests import base

_TOP = Path(__file__).parents[4]
_SAMPLE = _TOP / 'etc' / 'nova-dedup-migrate' / 'api-uwsgi.ini'
#: Seconds, on a machine that is busy with others.
_LIMIT = 25
_MERCY = 5


class _Connection(http.client.HTTPConnection):

    def __init__(self, path: Path) -> None:
        super().__init__('localhost', timeout=_LIMIT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class UwsgiTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.place = self.temporary_dir()
        self.socket = self.place / 'socket'
        self.database = self.place / 'database'
        conf = self.place / 'nova-dedup-migrate.conf'
        conf.write_text(
            '[DEFAULT]\ntransport_url = fake:///\n'
            f'[database]\nconnection = sqlite:///{self.database}\n'
            '[api]\nauth_strategy = noauth2\n')
        self.environment = {
            **os.environ, 'OS_DEDUP_MIGRATE_CONFIG_DIR': str(self.place),
            'PYTHONPATH': str(_TOP)}
        text, sockets = re.subn('^http-socket = .*', 'http-socket = '
                                + str(self.socket), _SAMPLE.read_text(),
                                flags=re.MULTILINE)
        # Python is built in here.
        text, plugins = re.subn('^plugin = .*\n', '', text,
                                flags=re.MULTILINE)
        # A process that has not set its handlers yet misses the signal,
        # and is killed when this is over.
        text, mercies = re.subn('^worker-reload-mercy = .*',
                                'worker-reload-mercy = %d' % _MERCY, text,
                                flags=re.MULTILINE)
        self.assertEqual((1, 1, 1), (sockets, plugins, mercies))
        self.ini = self.place / 'api-uwsgi.ini'
        self.ini.write_text(text)
        self.log = self.place / 'log'
        self.program = Path(sys.executable).parent / 'uwsgi'

    def start(self):
        with open(self.log, 'wb') as log:
            process = subprocess.Popen(
                [self.program, '--virtualenv', sys.prefix, '--ini', self.ini],
                env=self.environment, stdout=log, stderr=log,
                start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def answers(self):
        connection = _Connection(self.socket)
        try:
            connection.request('GET', '/')
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def logged(self, words):
        return words in self.log.read_text()

    def catches(self, process, number):
        """Whether a process has a handler of a signal."""
        text = Path(f'/proc/{process.pid}/status').read_text()
        caught = re.search(r'^SigCgt:\s*(\w+)', text, re.MULTILINE)
        return bool(int(caught[1], 16) >> (number - 1) & 1)

    def terminate(self, process):
        """Send SIGTERM and return the status."""
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(_LIMIT)
        except subprocess.TimeoutExpired:
            self.fail(self.log.read_text()[-2000:])

    def test_ends_as_soon_as_it_answers(self):
        process = self.start()
        self.eventually(self.answers, 'an answer of the API', _LIMIT)
        # All processes are there, and the handler of SIGTERM is.
        self.eventually(lambda: self.logged('(master-start)'),
                        'the handler of SIGTERM', _LIMIT)
        # It is set just after it is logged.
        self.assertTrue(self.answers())
        # Processes are copies of the one that has loaded it.
        self.assertFalse(self.database.exists(),
                         'loading the API opened its database')
        self.assertEqual(0, self.terminate(process))

    def test_ends_while_it_loads(self):
        process = self.start()
        self.eventually(lambda: self.catches(process, signal.SIGTERM),
                        'the handler of SIGTERM', _LIMIT)
        self.assertFalse(self.logged('WSGI app 0'), 'it is loaded')
        self.assertEqual(30, self.terminate(process))
