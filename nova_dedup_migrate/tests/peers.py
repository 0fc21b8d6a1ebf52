# SPDX-License-Identifier: Apache-2.0
"""The guest's end of a port, for tests: real sockets, any manners."""

import base64
import json
import socket
import threading


class Peer:
    """Listens on a unix socket, as QEMU does for a port.

    :param path: of the socket
    :param manners: callable(socket) for each connection, one at a time;
        what it raises of a connection that broke is nothing to report
    """

    def __init__(self, path, manners):
        self.path = path
        self._manners = manners
        self._open = True
        self._current = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(4)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while self._open:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._current = connection
            with connection:
                try:
                    self._manners(connection)
                except OSError:
                    # the other side has gone
                    continue

    def close(self):
        """End it, whatever it does."""
        self._open = False
        for one in (self._listener, self._current):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except (OSError, AttributeError):
                # not connected, or never was
                continue
        self._listener.close()
        self._thread.join(30)
        if self._thread.is_alive():
            raise AssertionError('the peer does not end')


def hang(connection):
    """Read all and never answer."""
    while connection.recv(1 << 16):
        pass


def flood(connection):
    """Never stop to send, and read nothing."""
    while True:
        connection.sendall(b'{"return": 1}' * 5000)


def hang_up(connection):
    """Close it at the first word."""
    connection.recv(1)


class GuestAgent:
    """Answers as qemu-guest-agent does, and is a Peer's manners.

    :param handlers: by command, a callable(arguments) that returns what
        the reply returns; AgentSays to answer otherwise
    :ivar commands: names of the commands that came, in order
    """

    def __init__(self, handlers):
        self.handlers = handlers
        self.commands = []

    def __call__(self, connection):
        with connection.makefile('rb') as lines:
            for line in lines:
                connection.sendall(self.answer(line))

    def answer(self, line):
        request = json.loads(line.lstrip(b'\xff'))
        name, arguments = request['execute'], request.get('arguments', {})
        if name == 'guest-sync-delimited':
            return b'\xff' + self._encode({'return': arguments['id']})
        self.commands.append(name)
        if name not in self.handlers:
            return self._encode({'error': {
                'class': 'CommandNotFound',
                'desc': 'The command %s has not been found' % name}})
        try:
            return self._encode({'return': self.handlers[name](arguments)})
        except AgentSays as says:
            return says.data

    @staticmethod
    def _encode(message):
        return json.dumps(message).encode() + b'\n'


class AgentSays(Exception):
    """Raised by a handler: send these bytes."""

    def __init__(self, data):
        super().__init__()
        self.data = data


def agent_error(text):
    """Return AgentSays of an error."""
    return AgentSays(json.dumps({'error': {
        'class': 'GenericError', 'desc': text}}).encode() + b'\n')


def encoded(data):
    """Return base64 text of bytes."""
    return base64.b64encode(data).decode()
