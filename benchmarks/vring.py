# SPDX-License-Identifier: Apache-2.0
"""A virtio-blk driver outside of the guest.

It reads a disk as fast as QEMU can, without a guest's processor, which
under TCG would be all that is measured.  Guest memory is a file that we
map too; rings and requests are written there, QEMU is told about them
through its test interface (-qtest), which works while the guest stands
still.

    0 MiB   unused
    1 MiB   ring            2 MiB   request headers     3 MiB   status bytes
    16 MiB  and on: where the data goes

The legacy interface is used: virtio 0.9.5, appendix and section 2.3.
"""

import mmap
from pathlib import Path
import random
import socket
import struct
import time

_RING = 1 << 20
_HEADERS = 2 << 20
_STATUS = 3 << 20
_DATA = 16 << 20

_BAR = 0xC000
_SLOT = 5
_FEATURES, _PFN, _SIZE, _SELECT, _NOTIFY, _DEVICE_STATUS = 4, 8, 12, 14, 16, 18
_ACKNOWLEDGE, _DRIVER, _DRIVER_OK = 1, 2, 4
_NEXT, _WRITE = 1, 2

#: entries of the ring; a request takes three
QUEUE = 1024
#: requests that are handed over at a time
BATCH = 256
_POLL_S = 50e-6

#: device for QEMU's command line, for a disk whose node has this name
NODE = 'disk'
DEVICE = (
    f'virtio-blk-pci,drive={NODE},id=disk0,addr={_SLOT:#x},'
    f'disable-modern=on,disable-legacy=off,queue-size={QUEUE}'
)


class Qtest:
    """Port I/O through QEMU's test interface."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30)
        self._socket.connect(str(path))
        self._replies = self._socket.makefile('rb')

    def close(self) -> None:
        self._replies.close()
        self._socket.close()

    def _command(self, line: str) -> list[str]:
        self._socket.sendall(line.encode() + b'\n')
        while True:
            words = self._replies.readline().decode().split()
            if not words:
                raise OSError('QEMU has closed its test interface')
            if words[0] == 'OK':
                return words[1:]
            if words[0] != 'IRQ':
                raise OSError(f'{line}: {" ".join(words)}')

    def out(self, width: str, port: int, value: int) -> None:
        """:param width: b, w or l"""
        self._command(f'out{width} {port:#x} {value:#x}')

    def read(self, width: str, port: int) -> int:
        return int(self._command(f'in{width} {port:#x}')[0], 0)

    def config(self, offset: int, value: int) -> None:
        """Write 32 bits of the disk's PCI configuration space."""
        self.out('l', 0xCF8, 1 << 31 | _SLOT << 11 | offset)
        self.out('l', 0xCFC, value)


def batches(
    size: int, disk: int, memory: int, sequential: bool, count: int
) -> list[tuple[bytes, bytes]]:
    """(descriptors, headers) of `count` batches of reads.

    :param size: bytes of a request
    :param disk: bytes of the disk; memory: of the guest's memory
    """
    pick = random.Random(1)
    places = (memory - _DATA) // size
    sectors = size // 512
    made = []
    for number in range(count):
        descriptors = bytearray()
        headers = bytearray()
        for i in range(BATCH):
            at = number * BATCH + i
            data = _DATA + (
                at % places if sequential else pick.randrange(places)
            ) * size
            block = (
                at % (disk // size)
                if sequential
                else pick.randrange(disk // size)
            )
            headers += struct.pack('<IIQ', 0, 0, block * sectors)
            descriptors += struct.pack(
                '<QIHHQIHHQIHH',
                _HEADERS + 16 * i, 16, _NEXT, 3 * i + 1,
                data, size, _NEXT | _WRITE, 3 * i + 2,
                _STATUS + i, 1, _WRITE, 0,
            )  # fmt: skip
        made.append((bytes(descriptors), bytes(headers)))
    return made


class Disk:
    """Drives the disk of a QEMU that was started with DEVICE.

    :param memory: Path of the file that is the guest's memory
    """

    def __init__(self, qtest: Qtest, memory: Path) -> None:
        self._qtest = qtest
        with open(memory, 'r+b') as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self._avail = _RING + 16 * QUEUE
        end = self._avail + 4 + 2 * QUEUE + 2
        self._used = (end + 4095) & ~4095
        self._index = 0
        # Nothing of a driver before us
        end = self._used + 4 + 8 * QUEUE
        self.memory[_RING:end] = bytes(end - _RING)
        self._set_up()

    def close(self) -> None:
        self.memory.close()

    def _set_up(self) -> None:
        qtest = self._qtest
        qtest.config(0x10, _BAR | 1)
        # I/O space, memory space, bus master
        qtest.config(0x04, 7)
        for status in (0, _ACKNOWLEDGE, _ACKNOWLEDGE | _DRIVER):
            qtest.out('b', _BAR + _DEVICE_STATUS, status)
        qtest.out('l', _BAR + _FEATURES, 0)
        qtest.out('w', _BAR + _SELECT, 0)
        size = qtest.read('w', _BAR + _SIZE)
        if size != QUEUE:
            raise OSError(f'the ring has {size} entries, not {QUEUE}')
        qtest.out('l', _BAR + _PFN, _RING >> 12)
        qtest.out(
            'b',
            _BAR + _DEVICE_STATUS,
            _ACKNOWLEDGE | _DRIVER | _DRIVER_OK,
        )
        # No interrupts; the heads are always the same ones.
        ring = struct.pack('<HH', 1, 0)
        for i in range(QUEUE):
            ring += struct.pack('<H', 3 * (i % BATCH))
        self.memory[self._avail : self._avail + len(ring)] = ring

    def _done(self) -> int:
        return struct.unpack_from('<H', self.memory, self._used + 2)[0]

    def read(self, batch: tuple[bytes, bytes]) -> None:
        """Have a batch read and wait for it.

        :raises OSError: a request failed, or took half a minute
        """
        descriptors, headers = batch
        memory = self.memory
        memory[_RING : _RING + len(descriptors)] = descriptors
        memory[_HEADERS : _HEADERS + len(headers)] = headers
        memory[_STATUS : _STATUS + BATCH] = b'\xff' * BATCH
        self._index = (self._index + BATCH) & 0xFFFF
        struct.pack_into('<H', memory, self._avail + 2, self._index)
        self._qtest.out('w', _BAR + _NOTIFY, 0)
        give_up = time.monotonic() + 30
        while self._done() != self._index:
            if time.monotonic() > give_up:
                raise OSError('the disk does not answer')
            time.sleep(_POLL_S)
        if any(memory[_STATUS : _STATUS + BATCH]):
            raise OSError('the disk could not be read')
