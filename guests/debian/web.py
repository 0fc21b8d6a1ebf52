# SPDX-License-Identifier: Apache-2.0
"""Loads the Debian guest's web server from outside the guest.

    load = web.WebLoad(instance_network.address(cloud, server))
    load.learn()                         # what the files are
    load.start(rate=20)
    ...                                  # the guest migrates
    load.stop()
    for request in load.requests(): ...

With client.DebianGuest.start('web') it is the guest itself that asks.

Requests are due at fixed times, for files at random, by connections that
stay; latency counts from the moment a request was due, so who waits because
the server is late is not forgotten.  All times are this program's
time.monotonic().
"""

import http.client
import random
import socket
import threading
import time
from typing import NamedTuple
import zlib

from guests import errors
from guests.debian.client import FILE_BYTES
from guests.debian.client import FILES

#: What becomes of a request: the file came; no answer came, or another one
#: than the file; or what came differs from the file.
GOOD, FAILED, WRONG = 'good', 'failed', 'wrong'
#: Seconds without a byte until a request has failed.  Late is not wrong: it
#: is the latency that tells of it.
TIMEOUT = 100.0
#: Connections, and so requests at the same time.
CLIENTS = 4
_PAUSE = 0.1
#: Seconds that requests have to end in, once the load is to stop.
_GRACE = 30.0
_ERRORS = (OSError, http.client.HTTPException)


class Request(NamedTuple):
    """:ivar due: s, when it was due
    :ivar end: s, when all of the answer was there, or it failed
    :ivar bytes: of the file's content, that arrived
    :ivar outcome: GOOD, FAILED or WRONG
    """

    due: float
    end: float
    bytes: int
    outcome: str

    @property
    def latency(self):
        """Seconds."""
        return self.end - self.due


class WebLoad:
    """:param address: of the guest, with the interface if it is of a link
    :ivar began, ended: s, when it was last started and stopped
    """

    def __init__(self, address, port=80, files=FILES, file_bytes=FILE_BYTES):
        self._address = address
        self._port = port
        self._file_bytes = file_bytes
        self._sums = [None] * files
        self._lock = threading.Lock()
        self._threads = []
        self.began = self.ended = None

    def learn(self, timeout=60.0):
        """Get each file once; from then on they have to stay as they are.

        :param timeout: s, until the server has to answer at all
        :raises GuestFailed: a file does not come
        """
        client = self._client()
        deadline = time.monotonic() + timeout
        try:
            while client.get(0)[0] == FAILED:
                if time.monotonic() > deadline:
                    raise errors.GuestFailed('no web server answers at %s' % (
                        self._address))
                time.sleep(1.0)
            for number in range(len(self._sums)):
                outcome, _count, found = client.get(number)
                if outcome != GOOD:
                    raise errors.GuestFailed('the web server at %s does not '
                                          'serve file %d' % (self._address,
                                                             number))
                self._sums[number] = found
        finally:
            client.close()

    def start(self, rate, clients=CLIENTS):
        """Begin; what was measured before is forgotten.

        :param rate: requests a second, of all clients together
        """
        self.stop()
        self._rate = rate
        self._random = random.Random(1)
        self._tickets = 0
        self._requests = []
        self._over = threading.Event()
        self.began, self.ended = time.monotonic(), None
        self._clients = [self._client() for _ in range(clients)]
        self._threads = [
            threading.Thread(target=self._run, args=(each,), daemon=True)
            for each in self._clients]
        for thread in self._threads:
            thread.start()

    def stop(self):
        """End it; what does not end meanwhile has failed.  Idempotent."""
        if not self._threads:
            return
        self._over.set()
        deadline = time.monotonic() + _GRACE
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        for client, thread in zip(self._clients, self._threads, strict=True):
            client.interrupt()
            thread.join()
        self._threads = []
        self.ended = time.monotonic()

    def requests(self):
        """The Requests that have ended, in that order."""
        with self._lock:
            return sorted(self._requests, key=lambda one: one.end)

    def _client(self):
        return _Client(self._address, self._port, self._file_bytes)

    def _run(self, client):
        while (ticket := self._next()) is not None:
            due, number = ticket
            outcome, count, found = client.get(number)
            if outcome == GOOD and self._sums[number] not in (None, found):
                outcome = WRONG
            with self._lock:
                self._requests.append(Request(due, time.monotonic(), count,
                                              outcome))
            if outcome == FAILED:
                self._over.wait(_PAUSE)
        client.close()

    def _next(self):
        """Wait for the next request: when it was due and its file; None
        when there are to be no more."""
        with self._lock:
            due = self.began + self._tickets / self._rate
            number = self._random.randrange(len(self._sums))
            self._tickets += 1
        if self._over.wait(max(0.0, due - time.monotonic())):
            return None
        return due, number


class _Client:
    """A connection, made again whenever it broke."""

    def __init__(self, address, port, file_bytes):
        self._connection = http.client.HTTPConnection(address, port,
                                                      timeout=TIMEOUT)
        self._body = memoryview(bytearray(file_bytes))

    def get(self, number):
        """Ask for a file: (outcome, bytes that came, their checksum)."""
        count = 0
        try:
            self._connection.request('GET', '/f%05d' % number,
                                     headers={'Host': 'guest'})
            response = self._connection.getresponse()
            if response.status != 200:
                raise http.client.HTTPException(response.status)
            if response.length != len(self._body):
                self.close()
                return WRONG, 0, None
            while count < len(self._body):
                got = response.readinto(self._body[count:])
                if not got:
                    raise http.client.IncompleteRead(b'')
                count += got
        except _ERRORS:
            self.close()
            return FAILED, count, None
        return GOOD, count, zlib.crc32(self._body)

    def interrupt(self):
        """Have a request that waits fail, from another thread."""
        waiting = self._connection.sock
        if waiting is not None:
            try:
                waiting.shutdown(socket.SHUT_RDWR)
            except OSError:
                # it has ended by itself
                return

    def close(self):
        self._connection.close()
