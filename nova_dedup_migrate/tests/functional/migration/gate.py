# SPDX-License-Identifier: Apache-2.0
"""A link whose main channel and whose others can be held up apart.

TCP promises nothing about the order between connections.  So a multifd
channel may be any time ahead of the main one; here it is on purpose.
"""

import socket
import threading

from testkit import direct

#: RAM_SAVE_FLAG_DEDUP and the type RECORDS, see qemu/src/.../wire.h
RECORDS = (0x100).to_bytes(8) + (3).to_bytes(2)


class GatedGuest(direct.DirectGuest):
    """A destination whose main channel stops before the first records.

    :ivar held: set when it has stopped
    :ivar opened: set it to let the main channel go on
    :ivar alone: let only those records pass then
    :ivar rest_opened: set it to let the rest follow
    :ivar side_opened: set it to let the others send more than 64 KiB
    :ivar side_bytes: what has passed on the other channels
    """

    side_free = 64 << 10
    alone = False

    def __init__(self, *args, **given):
        super().__init__(*args, **given)
        self.held = threading.Event()
        self.opened = threading.Event()
        self.rest_opened = threading.Event()
        self.side_opened = threading.Event()
        self.side_bytes = 0
        self._open = []

    def qmp(self, command, /, **arguments):
        result = super().qmp(command, **arguments)
        if command == 'migrate-incoming':
            for event in (self.held, self.opened, self.rest_opened,
                          self.side_opened):
                event.clear()
            path = self.migration_socket
            real = path.with_suffix('.real')
            path.rename(real)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen(16)
            self._open.append(listener)
            threading.Thread(target=self._accept, args=(listener, real),
                             daemon=True).start()
        return result

    def destroy(self):
        super().destroy()
        self.opened.set()
        self.rest_opened.set()
        self.side_opened.set()
        for one in self._open:
            _end(one)
            one.close()
        self._open = []

    def _accept(self, listener, real):
        main = True
        while True:
            try:
                source, _ = listener.accept()
            except OSError:
                return
            destination = socket.socket(socket.AF_UNIX)
            destination.connect(str(real))
            self._open += [source, destination]
            forward = self._copy_main if main else self._copy_side
            for copy, pair in ((forward, (source, destination)),
                               (_copy, (destination, source))):
                threading.Thread(target=_until_end, args=(copy, *pair),
                                 daemon=True).start()
            main = False

    def _copy_main(self, reader, writer):
        before = b''
        while data := reader.recv(1 << 16):
            if not self.held.is_set():
                # the mark may be cut in two; its beginning is gone then
                at = (before + data).find(RECORDS)
                before, passed = (before + data)[1 - len(RECORDS):], before
                if at >= 0:
                    cut = max(0, at - len(passed))
                    writer.sendall(data[:cut])
                    data = data[cut:]
                    self.held.set()
                    self.opened.wait()
                    data = self._pass_alone(reader, writer, data)
            writer.sendall(data)

    def _pass_alone(self, reader, writer, data):
        """Pass the element that data begins with, return what follows."""
        if not self.alone:
            return data
        while len(data) < 14 or (
                len(data) < (end := 14 + int.from_bytes(data[10:14]))):
            data += reader.recv(1 << 16)
        writer.sendall(data[:end])
        self.rest_opened.wait()
        return data[end:]

    def _copy_side(self, reader, writer):
        free = self.side_free
        while data := reader.recv(min(1 << 16, max(free, 1))):
            writer.sendall(data)
            self.side_bytes += len(data)
            if free > 0 and not self.side_opened.is_set():
                free -= len(data)
                if free <= 0:
                    self.side_opened.wait()
            else:
                free = 1 << 16


def _copy(reader, writer):
    while data := reader.recv(1 << 16):
        writer.sendall(data)


def _until_end(copy, reader, writer):
    try:
        copy(reader, writer)
        writer.shutdown(socket.SHUT_WR)
    except OSError:
        _end(reader)
        _end(writer)


def _end(one):
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        # it has ended already
        pass
