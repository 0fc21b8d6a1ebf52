# SPDX-License-Identifier: Apache-2.0
"""Sees a guest arrive: when it resumed, and its console from the beginning.

libvirtd of the destination is asked again and again.
"""

import threading
import time
import xml.etree.ElementTree as etree

import libvirt

from guests import line
from guests.messages import LineParser
from guests.synthetic.report import GuestReport

_LOOK_S = 0.1


class Listener:
    """Collects (host's time, GuestReport) that come over a console.

    :param path: of its terminal
    """

    def __init__(self, path) -> None:
        self.reports: list[tuple[float, GuestReport]] = []
        self._line = line.TerminalLine(path)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        parser = LineParser()
        while not self._over.is_set():
            data = self._line.receive(0.2)
            now = time.monotonic()
            for message in parser.feed(data):
                report = (GuestReport.from_message(message)
                          if message['type'] == 'report' else None)
                if report is not None:
                    self.reports.append((now, report))

    def close(self) -> None:
        """End it; idempotent."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join()
            self._line.close()


class Arrival:
    """Waits for an instance, in a thread of its own.

    :param uri: of libvirtd of the destination
    :param uuid: the instance's
    :param listen: whether to listen at its console
    :ivar resumed: time.monotonic() at which it was first seen to run
    :ivar listener: Listener, from before it runs
    """

    def __init__(self, uri: str, uuid: str, listen: bool) -> None:
        self.resumed: float | None = None
        self.listener: Listener | None = None
        self._uri = uri
        self._uuid = uuid
        self._listen = listen
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        # it would print each time that the guest is not there yet
        libvirt.registerErrorHandler(lambda *_: None, None)
        connection = libvirt.open(self._uri)
        try:
            while not self._over.is_set() and self.resumed is None:
                try:
                    self._look(connection)
                except libvirt.libvirtError:
                    # not there yet
                    self._over.wait(_LOOK_S)
        finally:
            connection.close()

    def _look(self, connection) -> None:
        domain = connection.lookupByUUIDString(self._uuid)
        if self._listen and self.listener is None:
            source = etree.fromstring(domain.XMLDesc()).find(
                "./devices/serial[@type='pty']/source")
            if source is not None and source.get('path'):
                self.listener = Listener(source.get('path'))
        if domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING:
            self.resumed = time.monotonic()
        else:
            self._over.wait(_LOOK_S)

    def close(self) -> None:
        """End looking; the listener goes on."""
        self._over.set()
        self._thread.join()
