# SPDX-License-Identifier: Apache-2.0
"""A guest that does what a test tells it, and a model of its memory.

The guest (scripted.S) moves pages between disk and memory, fills them and
changes single bytes, each on command, so that a test says exactly what
happens in which window of a migration.  Every command also changes the
model here; memory at the destination is held against it.
"""

import functools
import pathlib
import random
import socket
import struct
import subprocess
import tempfile

PAGE = 4096
SECTOR = 512
#: Pages the guest may use: above its code, below the BIOS's own data.
FIRST, LAST = 0x10, 0x6f
#: More of them, just above 1 MiB, at the end of what real mode can reach
HIGH = range(0x108, 0x10f)
#: The window that changes all the time, so that no migration converges
#: before it is let go.
HUM_AT, HUM_PAGES = 0x70, 32
#: Sector of the first page of a disk; the ones before are for booting.
DATA = 64

_SOURCE = pathlib.Path(__file__).with_name('scripted.S')


@functools.cache
def boot_sector():
    """Return its 512 bytes."""
    with tempfile.TemporaryDirectory() as directory:
        code = pathlib.Path(directory) / 'code.o'
        out = pathlib.Path(directory) / 'code.bin'
        for argv in (
                ['gcc', '-m32', '-c', '-o', code, _SOURCE],
                ['ld', '-m', 'elf_i386', '-Ttext', '0x7c00', '-e', '_start',
                 '--oformat', 'binary', '-o', out, code]):
            subprocess.run(argv, check=True)
        return out.read_bytes()


def write_disk(path, pages=1100, seed=1, boot=True, data=DATA,
               noise=PAGE):
    """Make a raw image: random pages from sector data on.

    :param noise: bytes of a page that are random; the rest is zeros
    :returns: its content, a bytearray
    """
    content = bytearray(-(-data * SECTOR // PAGE) * PAGE + pages * PAGE)
    source = random.Random(seed)
    content[data * SECTOR:data * SECTOR + pages * PAGE] = b''.join(
        source.randbytes(noise) + bytes(PAGE - noise)
        for _ in range(pages))
    if boot:
        content[:SECTOR] = boot_sector()
    path.write_bytes(content)
    return content


def _address(page):
    """Segment and offset of a page, also of those just above 1 MiB."""
    if page < 0x100:
        return page << 8, 0
    return 0xffff, 0x10 + (page - 0x100) * PAGE


class Refused(Exception):
    """The guest's disk refused a command."""


class Model:
    """What the guest's pages and disks have to hold.

    :param disks: contents of the disks, bytearrays, by drive number
    """

    def __init__(self, disks):
        self.disks = disks
        self.pages = {}

    def wrong_pages(self, image):
        """Return the known pages that a RamImage has otherwise."""
        low = next(f for f in image.files if f.range.start == 0)
        with low.path.open('rb') as file:
            ram = file.read((HIGH[-1] + 1) * PAGE)
        return [page for page, content in sorted(self.pages.items())
                if ram[page * PAGE:(page + 1) * PAGE] != content]


class Remote:
    """Commands to the guest on one host.

    :param path: socket of its COM2
    :param model: shared between source and destination
    """

    def __init__(self, path, model, timeout=30.0):
        self.model = model
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout)
        self._socket.connect(str(path))

    def close(self):
        self._socket.close()

    def wait(self):
        """Wait for the answer to the last command, or the first sign."""
        answer = self._socket.recv(1)
        if answer != b'!':
            raise Refused(answer)

    def send(self, operation, argument=0, page=0, number=0):
        """Give a command without waiting for its answer."""
        self._socket.sendall(struct.pack(
            '<cBHHI', operation.encode(), argument, *_address(page),
            number))

    def _do(self, *command):
        self.send(*command)
        self.wait()

    def read(self, page, sector, drive=0):
        """Read the page from the disk."""
        self._do('r', 0x80 + drive, page, sector)
        at = sector * SECTOR
        self.model.pages[page] = bytes(
            self.model.disks[drive][at:at + PAGE])

    def write(self, page, sector, drive=0):
        """Write the page to the disk."""
        self._do('w', 0x80 + drive, page, sector)
        at = sector * SECTOR
        self.model.disks[drive][at:at + PAGE] = self.model.pages[page]

    def fill(self, page, byte=0):
        """Fill the page with one byte."""
        self._do('f', byte, page)
        self.model.pages[page] = bytes([byte]) * PAGE

    def poke(self, page, offset=0, byte=None):
        """Change one byte of the page."""
        content = bytearray(self.model.pages[page])
        if byte is None:
            byte = content[offset] ^ 0x55
        self._do('p', byte, page, offset)
        content[offset] = byte
        self.model.pages[page] = bytes(content)

    def hum(self, pages=HUM_PAGES, words=PAGE // 4, at=HUM_AT):
        """Write noise into so many pages all the time, 0: stop.

        :param words: of 32 bits, at the beginning of each page
        :param at: the first page
        """
        self._do('h', pages, at, words)
