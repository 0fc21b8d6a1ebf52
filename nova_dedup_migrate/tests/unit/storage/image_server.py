# SPDX-License-Identifier: Apache-2.0
"""A Glance on 127.0.0.1 that serves one image, and misbehaves on request."""

import http.server
import re
import threading

IMAGE = '2a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
TOKEN = 'gAAAA-of-the-user'


class Server:
    """:param content: of the image
    :param tls: ssl.SSLContext of a certificate for localhost, or None

    :ivar fault: name of a method of Handler that answers instead
    :ivar after: answers that are right before that
    :ivar ranges: (first, last) of each request
    :ivar headers: of the last one
    :ivar connections: that were made
    """

    def __init__(self, case, content, tls=None):
        self.content = content
        self.fault = None
        self.after = 0
        self.ranges = []
        self.headers = None
        self.connections = 0
        self.ended = threading.Event()
        self._http = http.server.ThreadingHTTPServer(
            ('127.0.0.1', 0), type('Handler', (Handler,), {'owner': self}))
        self._http.daemon_threads = True
        self._http.handle_error = lambda *args: None
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, True)
        self.endpoint = '%s:%d/image' % (
            'http://127.0.0.1' if tls is None else 'https://localhost',
            self._http.server_address[1])
        threading.Thread(target=self._http.serve_forever, args=(0.05,),
                         daemon=True).start()
        case.addCleanup(self._http.server_close)
        case.addCleanup(self._http.shutdown)
        case.addCleanup(self.ended.set)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.owner.connections += 1

    def log_message(self, *args):
        """Keep quiet."""

    def do_GET(self):
        owner = self.owner
        owner.headers = self.headers
        first, last = map(int, re.fullmatch(
            r'bytes=(\d+)-(\d+)', self.headers['Range']).groups())
        owner.ranges.append((first, last))
        self.range = 'bytes %d-%d/%d' % (first, last, len(owner.content))
        self.data = bytes(owner.content[first:last + 1])
        if self.path != '/image/v2/images/%s/file' % IMAGE:
            self.answer(404, b'')
        elif owner.fault and len(owner.ranges) > owner.after:
            getattr(self, owner.fault)()
        else:
            self.answer(206, self.data, {'Content-Range': self.range})

    def answer(self, status, data, headers=None, length=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header('Content-Length', str(
            len(data) if length is None else length))
        self.end_headers()
        self.wfile.write(data)

    def whole(self):
        self.answer(200, self.owner.content)

    def other_range(self):
        self.answer(206, self.data, {
            'Content-Range': 'bytes 0-%d/%d' % (
                len(self.data) - 1, len(self.owner.content))})

    def other_size(self):
        self.answer(206, self.data, {
            'Content-Range': self.range + '0'})

    def no_range(self):
        self.answer(206, self.data)

    def short(self):
        """It ends in the middle."""
        self.answer(206, self.data[:-1], {'Content-Range': self.range},
                    len(self.data))
        self.close_connection = True

    def shorter(self):
        """It announces less."""
        self.answer(206, self.data[:-1], {'Content-Range': self.range})

    def longer(self):
        self.answer(206, self.data + b'x', {'Content-Range': self.range})

    def endless(self):
        """It does not announce a length."""
        self.send_response(206)
        self.send_header('Content-Range', self.range)
        self.end_headers()
        self.close_connection = True
        try:
            while not self.owner.ended.is_set():
                self.wfile.write(bytes(1 << 16))
        except OSError:
            # The client has had enough.
            return

    def closes(self):
        """All is right, and there is no length."""
        self.send_response(206)
        self.send_header('Content-Range', self.range)
        self.end_headers()
        self.wfile.write(self.data)
        self.close_connection = True

    def chunked(self):
        self.send_response(206)
        self.send_header('Content-Range', self.range)
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        self.wfile.write(b'%x\r\n%s\r\n0\r\n\r\n' % (len(self.data),
                                                     self.data))

    def hangs(self):
        self.owner.ended.wait(30)
        self.close_connection = True

    def hangs_within(self):
        self.answer(206, self.data[:100], {'Content-Range': self.range},
                    len(self.data))
        self.hangs()

    def trickles(self):
        self.answer(206, b'', {'Content-Range': self.range},
                    len(self.data))
        try:
            while not self.owner.ended.wait(0.05):
                self.wfile.write(b'x')
        except OSError:
            return

    def redirects(self):
        self.answer(302, b'', {'Location': self.owner.elsewhere})

    def unauthorized(self):
        self.answer(401, b'no')

    def forbidden(self):
        self.answer(403, b'no')

    def gone(self):
        self.answer(404, b'no')

    def no_ranges(self):
        self.answer(400, b'no')

    def gzip(self):
        self.answer(206, self.data, {'Content-Range': self.range,
                                     'Content-Encoding': 'gzip'})

    def no_http(self):
        self.wfile.write(b'SSH-2.0-OpenSSH_9.2p1\r\n')
        self.close_connection = True

    def other_bytes(self):
        self.answer(206, bytes(byte ^ 1 for byte in self.data),
                    {'Content-Range': self.range})

    def drops(self):
        """The connection breaks without an answer."""
        self.close_connection = True
