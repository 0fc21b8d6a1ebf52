# SPDX-License-Identifier: Apache-2.0
"""Another flow over the link of a migration, with a rate that it wants."""

from pathlib import Path
import socket
import threading
import time

from benchmarks import relay

#: Seconds; what could not be sent in so many slots is never sent.
_SLOT_S = 0.01
_LATE_SLOTS = 10
_READ = 1 << 20


class Neighbour:
    """Sends at its rate, as a stream of video does.

    What the link had no room for is lost to it.  A context manager; it sends
    until it is left.

    :param directory: for its sockets
    :param wire: the link's
    :param rate: bytes per second
    """

    def __init__(self, directory: Path, wire: relay.Wire, rate: float
                 ) -> None:
        self.rate = rate
        self._ended = threading.Event()
        far = directory / 'neighbour.far'
        near = directory / 'neighbour.near'
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(far))
        self._listener.listen(1)
        self._relay = relay.Relay(near, far, wire=wire)
        self._near = socket.socket(socket.AF_UNIX)
        self._near.connect(str(near))
        self._far, _ = self._listener.accept()
        self._threads = [threading.Thread(target=one, daemon=True)
                         for one in (self._send, self._receive)]
        #: (seconds of time.monotonic, bytes that came until then)
        self.samples: list[tuple[float, int]] = []

    def __enter__(self) -> 'Neighbour':
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._relay.close()
        for one in self._threads:
            one.join()
        for each in (self._near, self._far, self._listener):
            each.close()

    def sample(self) -> None:
        """Note how much has come by now."""
        self.samples.append((time.monotonic(), self._relay.forward_bytes))

    def mean(self) -> float:
        """Return the share of its rate that came, between first and last
        sample."""
        (begun, before), (ended, after) = self.samples[0], self.samples[-1]
        return (after - before) / ((ended - begun) * self.rate)

    def worst_second(self) -> float:
        """Return the same of the second in which least came."""
        return worst(self.samples) / self.rate

    def _send(self) -> None:
        slot = bytes(int(self.rate * _SLOT_S))
        due = time.monotonic()
        try:
            while not self._ended.is_set():
                self._near.sendall(slot)
                now = time.monotonic()
                due = max(due + _SLOT_S, now - _LATE_SLOTS * _SLOT_S)
                time.sleep(max(due - now, 0.0))
        except OSError:
            # The relay was closed.
            return

    def _receive(self) -> None:
        try:
            while self._far.recv(_READ):
                pass
        except OSError:
            return


def worst(samples: list[tuple[float, int]]) -> float:
    """Return bytes per second of the second in which least came.

    :param samples: (seconds, bytes until then), ascending; of less than a
        second, the rate of all
    """
    rates = []
    for at, (begun, before) in enumerate(samples):
        for ended, after in samples[at:]:
            if ended - begun >= 1:
                rates.append((after - before) / (ended - begun))
                break
    (begun, before), (ended, after) = samples[0], samples[-1]
    return min(rates, default=(after - before) / max(ended - begun, 1e-9))
