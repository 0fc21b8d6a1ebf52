# SPDX-License-Identifier: Apache-2.0
"""Gives the Debian guest orders and reads out what it measured.

    guest = client.DebianGuest(line.TerminalLine(console))
    guest.wait_ready()
    guest.warm('web')
    guest.start('web', rate=20)
    before = guest.clock()
    ...                                  # the guest migrates
    guest.attach(line.TerminalLine(new_console))
    after = guest.clock()
    seconds = guest.series('web', since=before.guest - 30)
    guest.stop('web')
    guest.verify('files')

Both loads run in the guest and ask its servers over its loopback; web loads
the web server from outside.  What a load measures stays in the guest until
it is asked for, so nothing is lost while the guest moves: the last quarter
of an hour, and the last 131072 requests.

All times are seconds of the guest's monotonic clock, which stands still
while the guest is stopped; clock() tells what the host's said meanwhile.

The orders are lines of text, the answers flat JSON objects
(guests.messages); src/guest.h has all of them.
"""

import dataclasses
import json
import secrets
import time

from guests import errors
from guests import orders
from guests.messages import LineParser

#: What can be loaded: the web server, the database.
LOADS = ('web', 'db')
#: Kinds of the database's load: pgbench's "TPC-B (sort of)", which reads
#: and writes, and its "select only".
DB_MODES = ('tpcb', 'select')
#: What can be read into the page cache and what can be verified.
CACHED, VERIFIED = ('web', 'db', 'all'), ('files', 'db', 'aged')
#: The web server's files, and bytes of each.
FILES, FILE_BYTES = 1024, 300 << 10
#: Seconds until an order is repeated that was not answered.
_AGAIN = 5.0


@dataclasses.dataclass(frozen=True)
class Clock:
    """The same moment as two clocks have it.

    :ivar guest: s, of the guest's monotonic clock
    :ivar host: s, of this program's time.monotonic()
    :ivar doubt: s, by which host may be wrong: half the time the answer
        took
    """

    guest: float
    host: float
    doubt: float

    def at_host(self, guest):
        """The host's time of a time of the guest, if it ran since."""
        return self.host + guest - self.guest


@dataclasses.dataclass(frozen=True)
class Window:
    """What a load did in some time.

    Requests are HTTP requests or transactions; they count when they end.

    :ivar begin, end: s, of the guest's clock
    :ivar bytes: web: of the files' contents that arrived.  db: what
        PostgreSQL read from its files, past its own buffers
    :ivar requests: that succeeded
    :ivar errors: that failed, or brought fewer bytes than the file has
    :ivar due: requests that should have begun in it, of those that have
        ended by now
    :ivar p50, p99, worst: s, latency of those that succeeded, from the
        moment at which they were due; 0 if there was none
    """

    begin: float
    end: float
    bytes: int = 0
    requests: int = 0
    errors: int = 0
    due: int = 0
    p50: float = 0.0
    p99: float = 0.0
    worst: float = 0.0

    @property
    def throughput(self):
        """MB/s, of 10**6 bytes."""
        return self.bytes / 1e6 / (self.end - self.begin)


@dataclasses.dataclass(frozen=True)
class Verification:
    """What was verified.

    :ivar bytes: files: all of their contents; db: of the relations
    :ivar errors: wrong pages, or wrong sums
    :ivar error: the first of them, '' if there is none
    """

    bytes: int
    errors: int
    error: str = ''


class DebianGuest:
    """The guest, by its serial line.

    Orders may be lost with the line and are repeated; each carries a
    number, and the guest carries it out once.

    :param line: line.Line, which is closed with this
    """

    def __init__(self, line):
        self._line = line
        self._parser = LineParser()
        self._number = secrets.randbits(40)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def close(self):
        """Close the line; idempotent."""
        self._line.close()

    def attach(self, line):
        """Go on by another line, that of the guest's new place."""
        self._line.close()
        self._line = line
        self._parser = LineParser()

    def wait_ready(self, timeout=600.0):
        """Wait until the guest has booted and both servers answer.

        :raises GuestFailed: it has not within timeout seconds
        """
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if self._order('ping', max(left, 1.0)).get('ready'):
                return
            if left < 0:
                raise errors.GuestFailed('the guest has booted, but its '
                                      'servers do not answer')
            time.sleep(1.0)

    def clock(self, timeout=60.0):
        """Return Clock, now."""
        asked = time.monotonic()
        reply = self._order('ping', timeout)
        answered = time.monotonic()
        return Clock(reply['mono_ms'] / 1e3, (asked + answered) / 2,
                     (answered - asked) / 2)

    def memory(self, timeout=60.0):
        """Return /proc/meminfo in bytes: MemTotal, Cached, Dirty ..."""
        reply = self._order('stat', timeout)
        return {name: int(kib) * 1024 for name, kib in reply.items()
                if name[0].isupper()}

    def warm(self, what='all', timeout=600.0):
        """Read what a server serves into the page cache.

        :param what: of CACHED
        :returns: bytes of it that are cached now; fewer than there are
            if the guest has not enough memory
        """
        _choice(what, CACHED)
        return int(self._order('warm ' + what, timeout)['cached'])

    def drop(self, timeout=120.0):
        """Write back what is dirty and drop the page cache."""
        self._order('drop', timeout)

    def age(self, rounds, memory, timeout=1800.0):
        """Use files as a machine in use does, while memory is short.

        :param rounds: times that each file is used, on average
        :param memory: bytes that a process needs now and then
        """
        self._order('age rounds=%d memory=%d' % (rounds, memory >> 20),
                    timeout)

    def start(self, load, rate=0.0, clients=2, mode='tpcb', timeout=120.0):
        """Start a load; one of its kind that runs is ended first.

        :param load: of LOADS
        :param rate: requests a second, of all clients together, whatever
            time they take; 0: each as soon as the one before has ended
        :param clients: connections, at most 16
        :param mode: of DB_MODES, of the load db
        """
        _choice(load, LOADS)
        _choice(mode, DB_MODES)
        words = ['start', load, 'rate=%d' % round(rate * 1000),
                 'clients=%d' % clients]
        if load == 'db':
            words.append('mode=' + mode)
        self._order(' '.join(words), timeout)

    def stop(self, load, timeout=120.0):
        """End a load; what it measured stays.  No error if none runs."""
        _choice(load, LOADS)
        self._order('stop ' + load, timeout)

    def series(self, load, since=0.0, timeout=120.0):
        """Return a Window for each whole second in which a load ran.

        The database's transactions come about 100 at a time, so while it
        runs the last seconds may still be without them.

        :param since: s, of the guest's clock
        """
        _choice(load, LOADS)
        reports = []
        reply = self._order('series %s since=%d' % (
            load, max(0, int(since * 1000))), timeout, reports)
        windows = {}
        for report in reports:
            window = _window(report)
            windows[window.begin] = window
        if len(windows) != reply['seconds']:
            raise errors.GuestFailed('of %d seconds that the guest sent %d '
                                  'arrived' % (reply['seconds'],
                                               len(windows)))
        return [windows[begin] for begin in sorted(windows)]

    def window(self, load, begin, end, timeout=120.0):
        """Return the Window from begin to end, s of the guest's clock."""
        _choice(load, LOADS)
        if not 0 <= begin < end:
            raise ValueError('no time from %s to %s' % (begin, end))
        return _window(self._order('window %s from=%d to=%d' % (
            load, begin * 1000, end * 1000), timeout))

    def verify(self, what='files', timeout=600.0):
        """Have the guest verify what it serves; reads all of it.

        :param what: of VERIFIED.  files: each page of the web server's
            files has the content it was made with.  db: the sums over
            accounts, tellers, branches and history agree, and so do the
            checksums of the pages read; while no load runs.  aged: each
            page of the files that were aged; 0 bytes if none were
        :returns: Verification
        """
        _choice(what, VERIFIED)
        reply = self._order('verify ' + what, timeout)
        return Verification(int(reply['bytes']), int(reply['errors']),
                       str(reply.get('error', '')))

    def poweroff(self):
        """Shut the guest down; returns when it has begun to."""
        self._order('poweroff', 60.0)

    def _order(self, words, timeout, reports=None):
        """Give an order, return the reply.

        :param reports: list that takes what comes before the reply
        :raises GuestFailed: there is no answer, or the guest refuses
        """
        self._number += 1
        number = self._number

        def is_reply(message):
            if message.get('id') != number:
                return False
            if message['type'] == 'report' and reports is not None:
                reports.append(message)
            return message['type'] == 'reply'

        return orders.send(self._line, self._parser, words, is_reply,
                           timeout, _AGAIN, number)


def _window(message):
    """A Window of a report or reply; what the guest sends may lack."""
    try:
        return Window(
            begin=message['from_ms'] / 1e3, end=message['to_ms'] / 1e3,
            bytes=int(message['bytes']), requests=int(message['requests']),
            errors=int(message['errors']), due=int(message['due']),
            p50=message['p50_us'] / 1e6, p99=message['p99_us'] / 1e6,
            worst=message['max_us'] / 1e6)
    except (KeyError, TypeError) as error:
        raise errors.GuestFailed('the guest reports %s' % (
            json.dumps(message)[:200])) from error


def _choice(value, choices):
    if value not in choices:
        raise ValueError('%r: expected one of %s' % (
            value, ', '.join(choices)))
