# SPDX-License-Identifier: Apache-2.0
"""I/O on storage while a volume moves, by a process of its own.

A load makes requests one at a time, so many a second at most; what it misses
it does not catch up with.  So the share of its requests that it gets through
says how much slower storage has become, and not how fast this machine is.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import dataclasses
import json
import multiprocessing
import os
import pathlib
import random
import socket
import threading
import time

from nova_dedup_migrate.storage.libnbd import nbd

_FORK = multiprocessing.get_context('fork')
#: Seconds for the last request to end: storage may be very busy.
_STOP = 120


@dataclasses.dataclass(frozen=True)
class Count:
    """What a load has done at a time.

    :ivar read: bytes
    """

    time: float
    requests: int
    read: int


class Load:
    """Makes requests until it is stopped.

    :param connect: returns a context manager, which gives a function that
        takes (whether to write, a random.Random) and makes one request
    :param size: bytes of a request
    :param rate: requests a second, at most
    :param writes: every so many requests one is a write
    :param waits: whether it waits for begin() before it connects; so its
        process can be forked before there are threads
    :ivar processor: seconds that its process took, after stop()
    """

    def __init__(self, connect: Callable, size: int, rate: float,
                 writes: int = 2, waits: bool = False) -> None:
        self._connect = connect
        self._size = size
        self._rate = rate
        self._writes = writes
        self._requests = _FORK.Value('q', 0)
        self._took = _FORK.Value('d', 0.0)
        self._begin = _FORK.Event()
        self._stop = _FORK.Event()
        self.processor = 0.0
        if not waits:
            self.begin()
        self._process = _FORK.Process(target=self._run, daemon=True)
        self._process.start()

    def count(self) -> Count:
        with self._requests.get_lock():
            done = self._requests.value
        return Count(time.monotonic(), done,
                     (done - done // self._writes) * self._size)

    def begin(self) -> None:
        self._begin.set()

    def stop(self) -> None:
        """Wait for the last request.

        :raises RuntimeError: a request has failed
        """
        self._stop.set()
        self._begin.set()
        self._process.join(_STOP)
        self.processor = self._took.value
        if self._process.exitcode is None:
            self._process.kill()
        if self._process.exitcode:
            raise RuntimeError('I/O of a load failed after %d requests: see '
                               'the error above' % self.count().requests)

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.join()

    def _run(self) -> None:
        end_with_parent()
        self._begin.wait()
        if not self._stop.is_set():
            self._work()
        self._took.value = time.process_time()

    def _work(self) -> None:
        chance = random.Random(self._size)
        due = time.monotonic()
        with self._connect() as request:
            while not self._stop.is_set():
                request(self._requests.value % self._writes
                        == self._writes - 1, chance)
                with self._requests.get_lock():
                    self._requests.value += 1
                now = time.monotonic()
                due = max(due + 1 / self._rate, now)
                time.sleep(due - now)


def end_with_parent() -> None:
    """Have this process end when the one that forked it is killed."""
    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def guest(monitor: pathlib.Path, size: int, disk: int,
          written: list[int]) -> Callable:
    """Return a Load's connect: I/O of a QEMU's disk0, as its guest's.

    It passes QEMU's own backend of the disk, so that a watch and a mirror
    see it.

    :param monitor: socket of a QMP monitor that nobody else uses
    :param size: bytes of a request
    :param disk: bytes of the disk; reads are from anywhere
    :param written: offsets that are written to
    """
    @contextlib.contextmanager
    def connect():
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(monitor))
            replies = peer.makefile('r')
            replies.readline()
            _qmp(peer, replies, 'qmp_capabilities')

            def request(write: bool, chance: random.Random) -> None:
                line = (
                    'write -q -P %d %d %d' % (
                        chance.randrange(1, 255), chance.choice(written),
                        size) if write else
                    'read -q %d %d' % (
                        chance.randrange(disk // size) * size, size))
                printed = _qmp(
                    peer, replies, 'human-monitor-command', **{
                        'command-line': 'qemu-io -d /machine/peripheral/'
                        'disk0/virtio-backend "%s"' % line})
                if printed:
                    raise OSError('%s: %s' % (line, printed.strip()))

            yield request

    return connect


def _qmp(peer, replies, command, **arguments):
    peer.sendall(json.dumps({'execute': command, 'arguments': arguments})
                 .encode() + b'\n')
    for line in replies:
        reply = json.loads(line)
        if 'return' in reply:
            return reply['return']
        if 'error' in reply:
            raise OSError('%s: %s' % (command, reply['error']))
    raise OSError('%s: QEMU has closed its monitor' % command)


def neighbour(address: pathlib.Path, export: str, size: int) -> Callable:
    """Return a Load's connect: I/O of an NBD export, at random.

    :param address: of a unix socket
    :param size: bytes of a request
    """
    @contextlib.contextmanager
    def connect():
        handle = nbd.NBD()
        handle.set_export_name(export)
        handle.connect_unix(str(address))
        places = handle.get_size() // size
        try:
            def request(write: bool, chance: random.Random) -> None:
                at = chance.randrange(places) * size
                if write:
                    handle.pwrite(b'n' * size, at)
                else:
                    handle.pread(size, at)

            yield request
        finally:
            handle.shutdown()

    return connect


def share(before: tuple[Count, Count], during: tuple[Count, Count]) -> float:
    """Return requests a second during something against those before."""
    return _rate(during) / _rate(before)


def _rate(span: tuple[Count, Count]) -> float:
    first, last = span
    return (last.requests - first.requests) / (last.time - first.time)
