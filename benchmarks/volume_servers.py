# SPDX-License-Identifier: Apache-2.0
"""The processes around disks that move: storage and link.

::

    QEMU 1 --+                                      +-- target of 1
    QEMU 2 --+-- NBD -- storage      link ----------+-- target of 2
    neighbour            one rate     QEMUs' mirrors and the bytes of
                                      servers, all together
"""

from __future__ import annotations

import json
import multiprocessing
from multiprocessing import managers
import pathlib
import time

from benchmarks import relay
from benchmarks import volume_load
from nova_dedup_migrate.hypervisor import process

_FORK = multiprocessing.get_context('fork')
#: Where a server listens.  Clients connect to the link, at the same port
#: of the other address.
BEHIND, BEFORE = '127.0.0.2', '127.0.0.1'


class Storage:
    """Exports files by NBD; all of their I/O has one rate.

    :param program: path of qemu-storage-daemon
    :param files: name of the export -> path
    :param rate: bytes a second, read or written
    """

    def __init__(self, program: pathlib.Path, directory: pathlib.Path,
                 files: dict[str, pathlib.Path], rate: int) -> None:
        self.address = directory / 'storage'
        arguments = [
            program, '--object',
            'throttle-group,id=storage,x-bps-total=%d' % rate,
            '--nbd-server', 'addr.type=unix,addr.path=%s' % self.address]
        for name, path in files.items():
            for node in (
                    {'driver': 'file', 'node-name': name + '-file',
                     'filename': str(path), 'cache': {'direct': True}},
                    {'driver': 'throttle', 'node-name': name,
                     'throttle-group': 'storage', 'file': name + '-file',
                     'cache': {'direct': True}}):
                arguments += ['--blockdev', json.dumps(node)]
            arguments += ['--export', 'nbd,id=%s-export,node-name=%s,'
                          'name=%s,writable=on' % (name, name, name)]
        self._process = process.Process(
            arguments, directory / 'storage.log', directory)
        end = time.monotonic() + 30
        while not self.address.exists():
            if (self._process.status() is not None
                    or time.monotonic() > end):
                raise RuntimeError('the storage does not start: '
                                   + self._process.last_lines())
            time.sleep(0.01)

    def read(self) -> int:
        """Return the bytes that were read from files."""
        return bytes_read(self._process.pid)

    def stop(self) -> None:
        self._process.kill()


class _Relays:
    """Relays that are one link, in the link's process."""

    def __init__(self, rate: int) -> None:
        self._wire = relay.Wire(rate)
        self._targets: list[relay.Relay] = []
        self._servers: list[relay.Relay] = []

    def target(self, path: str, target: str) -> None:
        self._targets.append(relay.Relay(
            pathlib.Path(path), pathlib.Path(target), wire=self._wire))

    def server(self, port: int) -> None:
        self._servers.append(relay.Relay(
            (BEFORE, port), (BEHIND, port), wire=self._wire, back=True))

    def carried(self) -> tuple[int, int]:
        return (sum(one.forward_bytes for one in self._targets),
                sum(one.back_bytes for one in self._servers))


class _LinkManager(managers.BaseManager):
    pass


_LinkManager.register('Relays', _Relays)


class Link:
    """What targets and servers of the source's side are reached by.

    :param rate: bytes a second towards the target's side, all together
    """

    def __init__(self, rate: int) -> None:
        self._manager = _LinkManager(ctx=_FORK)
        self._manager.start(volume_load.end_with_parent)
        self._relays = self._manager.Relays(rate)

    def target(self, address: str) -> str:
        """Return the address by which a target is reached over the link.

        :param address: of the target's unix socket
        """
        path = address + '-link'
        self._relays.target(path, address)
        return path

    def server(self, port: int) -> None:
        """Let clients at BEFORE reach the server at BEHIND.

        Its bytes are limited, not those of the clients' requests.
        """
        self._relays.server(port)

    def carried(self) -> tuple[int, int]:
        """Return bytes (to targets, from servers) so far."""
        return self._relays.carried()

    def stop(self) -> None:
        self._manager.shutdown()


def bytes_read(pid: int) -> int:
    """Return the bytes that a process has read from files."""
    for line in pathlib.Path('/proc/%d/io' % pid).read_text().splitlines():
        name, value = line.split(': ')
        if name == 'rchar':
            return int(value)
    raise ValueError('/proc/%d/io has no rchar' % pid)
