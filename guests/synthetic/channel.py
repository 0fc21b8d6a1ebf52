# SPDX-License-Identifier: Apache-2.0
"""Talks to the guest's program over a unix socket that QEMU listens on."""

from collections.abc import Callable
from pathlib import Path
import threading
import time

from guests.errors import GuestFailed
from guests.line import SocketLine
from guests.messages import LineParser
from guests.synthetic.report import GuestReport

_KEPT_REPORTS = 10000
#: Seconds after which the reader sees that it is to end.
_LOOK_S = 0.2


class GuestChannel:
    """One end of the channel of one QEMU; after a migration the guest
    goes on talking on the destination's.

    All methods may be called from any thread.  Times are seconds.
    """

    def __init__(self, path: Path | str) -> None:
        self._changed = threading.Condition()
        self._replies: list[dict] = []
        self._reports: list[GuestReport] = []
        self._ready: dict | None = None
        self._fatal: str | None = None
        self._open = True
        self._closing = threading.Event()
        self._ordering = threading.Lock()
        #: time.monotonic() of each beat that arrived
        self.beats: list[float] = []
        self._line = SocketLine(path)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> 'GuestChannel':
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._line.close()

    def _read(self) -> None:
        parser = LineParser()
        while not self._closing.is_set():
            try:
                data = self._line.receive(_LOOK_S)
            except GuestFailed:
                break
            with self._changed:
                for message in parser.feed(data):
                    self._take(message)
                self._changed.notify_all()
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def _take(self, message: dict) -> None:
        kind = message['type']
        if kind == 'report':
            report = GuestReport.from_message(message)
            if report is not None:
                self._reports.append(report)
                del self._reports[:-_KEPT_REPORTS]
        elif kind == 'reply':
            self._replies.append(message)
        elif kind == 'beat':
            self.beats.append(time.monotonic())
        elif kind == 'ready':
            self._ready = message
        else:
            self._fatal = str(message.get('message', 'unknown'))

    def _wait(
        self, found: Callable[[], object], what: str, timeout: float
    ) -> object:
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                result = found()
                if result is not None:
                    return result
                if self._fatal:
                    raise GuestFailed(f'the guest gave up: {self._fatal}')
                if not self._open:
                    raise GuestFailed(f'QEMU went away before {what}')
                left = deadline - time.monotonic()
                if left <= 0:
                    raise GuestFailed(f'no {what} within {timeout:.0f} s')
                self._changed.wait(left)

    @property
    def report(self) -> GuestReport | None:
        """The last report."""
        with self._changed:
            return self._reports[-1] if self._reports else None

    @property
    def reports(self) -> list[GuestReport]:
        with self._changed:
            return list(self._reports)

    def wait_ready(self, timeout: float = 120) -> dict:
        """Wait until memory is filled; returns the ready message."""
        return self._wait(
            lambda: self._ready, 'sign of life of the guest', timeout
        )

    def wait_report(self, timeout: float = 30) -> GuestReport:
        """Wait for the next report."""
        with self._changed:
            before = len(self._reports)
        return self._wait(
            lambda: self._reports[-1] if len(self._reports) > before else None,
            'report of the guest',
            timeout,
        )

    def command(self, line: str, timeout: float = 60) -> dict:
        """Send a command, wait for its reply.

        :raises GuestFailed: no answer, or the guest refuses
        """
        name = line.split()[0]
        with self._ordering:
            with self._changed:
                self._replies.clear()
            self._line.send(line.encode() + b'\n')
            reply = self._wait(
                lambda: next(
                    (
                        r
                        for r in self._replies
                        if r.get('command') in (name, 'unknown')
                    ),
                    None,
                ),
                f'answer to {name!r}',
                timeout,
            )
        if not reply.get('ok'):
            raise GuestFailed(
                f'the guest refuses {line!r}: {reply.get("message", "")}'
            )
        return reply

    def verify(self, what: str = '', timeout: float = 300) -> dict:
        """Have everything verified, or the given of cache, disk, anon.

        :returns: the reply: bytes verified, errors (0: all is right)
        """
        return self.command(f'verify {what}'.strip(), timeout)
