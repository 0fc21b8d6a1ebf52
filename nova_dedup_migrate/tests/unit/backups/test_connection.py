# SPDX-License-Identifier: Apache-2.0
"""Streams of daemons that are older, that fail, and that mean ill."""

import http.client
import http.server
import os
import ssl
import threading

import zstandard

from nova_dedup_migrate.backups import connection
from nova_dedup_migrate.backups import errors
from nova_dedup_migrate.backups import frames
from nova_dedup_migrate.backups import objects
from nova_dedup_migrate.tests import base

_UNIT = 32768
_SIZE = 64 * _UNIT
#: What a window of this size takes is more than MAX_WINDOW permits.
_WINDOW_LOG = 27


class _Daemon(http.server.BaseHTTPRequestHandler):
    """Answers each stream with what the test has set."""

    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        self.rfile.read(int(self.headers['Content-Length']))
        self.server.requested.append(self.headers['Accept-Encoding'])
        self.send_response(200)
        if self.server.encoding:
            self.send_header('Content-Encoding', self.server.encoding)
        self.send_header('Content-Length', str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, *args):
        """Print nothing."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that has enough ends the connection."""


def _compressed(body, **parameters):
    return zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(
            **parameters)).compress(body)


class StreamTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.server = _Server(('127.0.0.1', 0), _Daemon)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        threading.Thread(target=self.server.serve_forever, args=(0.01,),
                         daemon=True).start()
        self.server.requested = []
        self.server.encoding = None
        self.data = os.urandom(_UNIT) + bytes(3 * _UNIT)
        self.server.body = self.body = (
            frames.pack(frames.DATA, _UNIT, len(self.data)) + self.data
            + frames.pack(frames.MISSING, 8 * _UNIT, _UNIT)
            + frames.pack(frames.END))

    def stream(self):
        found = connection.Connection(
            'backup-1', objects.DedupBackupTicket(
                ticket='1' * 64, lifetime=60, url='https://127.0.0.1:%d'
                % self.server.server_port), ssl.create_default_context())
        found._http = http.client.HTTPConnection(
            '127.0.0.1', self.server.server_port, timeout=30)
        self.addCleanup(found.close)
        found.size, found.unit = _SIZE, _UNIT
        # Twice: the connection is free after a stream.
        first = list(found.stream([(0, _SIZE)]))
        self.assertEqual(first, list(found.stream([(0, _SIZE)])))
        return first

    def assert_read(self):
        data, missing = self.stream()
        self.assertEqual((frames.DATA, _UNIT), (data.kind, data.offset))
        self.assertTrue(self.data == data.data)
        self.assertEqual((frames.MISSING, 8 * _UNIT, _UNIT),
                         (missing.kind, missing.offset, missing.length))

    def malformed(self, pattern):
        self.assertRaisesRegex(errors.StreamMalformed, pattern, self.stream)

    def test_as_it_is(self):
        self.assert_read()
        self.assertEqual(['zstd', 'zstd'], self.server.requested)

    def test_compressed(self):
        self.server.encoding = 'zstd'
        self.server.body = _compressed(self.body)
        self.assertLess(len(self.server.body), 2 * _UNIT)
        self.assert_read()

    def test_another_encoding(self):
        self.server.encoding = 'gzip'
        self.malformed("its encoding is 'gzip'")

    def test_what_is_not_zstd(self):
        self.server.encoding = 'zstd'
        self.malformed('Unknown frame descriptor')

    def test_a_stream_that_ends_early(self):
        self.server.encoding = 'zstd'
        self.server.body = _compressed(self.body)[:-_UNIT // 2]
        self.malformed('it ends within a frame')

    def test_a_window_that_takes_much_memory(self):
        self.server.encoding = 'zstd'
        whole = self.body + os.urandom(1)
        stream = zstandard.ZstdCompressor(
            compression_params=zstandard.ZstdCompressionParameters(
                window_log=_WINDOW_LOG)).compressobj()
        self.server.body = stream.compress(whole) + stream.flush()
        self.malformed('too much memory')

    def test_more_than_was_announced(self):
        """A frame that zstd makes of little is not allocated."""
        self.server.encoding = 'zstd'
        self.server.body = _compressed(
            frames.pack(frames.DATA, 0, _SIZE) + bytes(_SIZE)
            + frames.pack(frames.DATA, 0, 1 << 40) + bytes(64 << 20))
        self.malformed('there is a frame of 1099511627776 bytes')

    def test_it_goes_on_after_its_end(self):
        self.server.body = self.body + bytes(2 << 20)
        self.malformed('it goes on after its end')
