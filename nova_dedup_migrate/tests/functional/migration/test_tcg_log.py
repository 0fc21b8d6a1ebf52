# SPDX-License-Identifier: Apache-2.0
"""TCG records a write that comes while the dirty log is read.

The guest's first write to a page is held between the look at the log and the
change of the TLB: QEMU traces it there, into a pipe that is full.
"""

import contextlib
import os
import threading
import time

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import scripted

_EVENT = 'memory_notdirty_set_dirty'
_PAGE = scripted.FIRST
#: So many pages after it are written to all the time.  QEMU sends 32 of them
#: in 100 ms if it may send next to nothing, so that a round takes 400 ms.
_OTHERS = 120
#: Bytes per second.
_RATE = 1 << 12


class Pipe:
    """A log for QEMU: while it is full, whoever writes to it waits."""

    def __init__(self, path):
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.drain()

    def _run(self):
        while not self._stop.wait(0.001):
            with contextlib.suppress(BlockingIOError):
                while os.read(self._fd, 1 << 16):
                    pass

    def drain(self):
        """Read all there is, and all that comes."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def fill(self):
        """Let nobody write any more."""
        self._halt()
        for size in 4096, 1:
            with contextlib.suppress(BlockingIOError):
                while os.write(self._fd, b'-' * size):
                    pass

    def _halt(self):
        self._stop.set()
        self._thread.join()

    def close(self):
        self._halt()
        os.close(self._fd)


class TcgLogTest(case.MigrationCase):

    def test_write_while_the_log_is_read(self):
        """Without 0012-tcg-tlb.patch the second write is lost."""
        path = self.directory / 'log'
        pipe = Pipe(path)
        self.addCleanup(pipe.close)
        one = self.rig(extra_args=('-D', str(path)))
        guest = one.boot()
        guest.fill(_PAGE, 1)
        guest.hum(_OTHERS, words=1, at=_PAGE + 1)
        one.migrate(arm=False, max_bandwidth=_RATE)
        one.rounds(2)
        one.source.qmp('trace-event-set-state', name=_EVENT, enable=True)
        one.rounds(1)
        guest.hum(0)
        pipe.fill()
        guest.send('p', 2, _PAGE, 100)
        # the round ends and the log is read, while the guest is within the
        # first write to the page
        time.sleep(1)
        pipe.drain()
        guest.wait()
        # the page is sent and the round goes on
        time.sleep(0.1)
        guest.poke(_PAGE, 200, 3)
        guest.poke(_PAGE, 100, 2)
        one.rounds(2)
        self.assert_right(one.finish())
