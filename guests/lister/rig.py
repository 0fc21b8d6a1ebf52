# SPDX-License-Identifier: Apache-2.0
"""A guest with the lister in it, and the truth to hold the listing against.

The truth is the guest's physical memory, dumped while it stands still, the
contents of its disks, and what its kernel says of each page.
"""

import dataclasses
import pathlib
import socket
import subprocess
import time

from guests.lister import image
from guests.lister import listing
from guests.lister import pageflags
from testkit import direct
from testkit import spec

PAGE = pageflags.PAGE


@dataclasses.dataclass
class Comparison:
    """What a listing is worth, in pages.

    :ivar right: pages whose memory and disk hold the same bytes
    :ivar wrong: (address, disk, offset, kind) of the others
    :ivar unwritten: number of metadata pages that differ only where the
        disk is zero: ext4 makes the bitmaps of groups never used in memory
    :ivar clean: set of page numbers that the kernel says are clean, up to
        date and of a file, without those that are all zero
    :ivar listed: set of page numbers listed
    """

    right: int
    wrong: list
    unwritten: int
    clean: set
    listed: set

    @property
    def coverage(self):
        return len(self.listed & self.clean) / max(1, len(self.clean))


class Guest:
    """A guest that runs shell commands.

    :param binary: QEMU
    :param disks: spec.Disk
    """

    def __init__(self, binary, disks, memory_mib=256, append='',
                 channels=(), **given):
        kernel, initrd, machine = image.guest_image()
        self.memory_mib = memory_mib
        self.memory_at = machine.memory
        self.disks = disks
        self.guest = direct.DirectGuest(spec.GuestSpec(
            binary=machine.emulator or binary, machine=machine.machine,
            cpu=machine.cpu, memory_mib=memory_mib, kernel=kernel,
            initrd=initrd,
            append=f'console={machine.console} loglevel=4 {append}',
            disks=tuple(disks),
            channels=(spec.Channel('control', 'virtio-serial', 'socket'),
                      *channels), **given))
        self._socket = None

    def start(self, timeout=240):
        self.guest.start()
        deadline = time.monotonic() + timeout
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(self.guest.channel('control')))
        self._socket.settimeout(timeout)
        self._file = self._socket.makefile('rb')
        line = self._file.readline()
        if line != b'ready 0\n':
            raise AssertionError('guest says %r; console: %s' % (
                line, self.guest.console.read_text()[-2000:]))
        return time.monotonic() - deadline + timeout

    def destroy(self):
        if self._socket is not None:
            self._socket.close()
        self.guest.destroy()

    def run(self, line, check=True, timeout=300):
        """Run a line of shell in the guest, return its output as bytes."""
        self._socket.settimeout(timeout)
        self._socket.sendall(line.replace('\n', ';').encode() + b'\n')
        status, length = self._file.readline().split()
        output = self._file.read(int(length))
        if check and int(status):
            raise AssertionError('%s: exit status %s: %s' % (
                line, int(status), output.decode(errors='replace')))
        return output

    def text(self, line, **given):
        return self.run(line, **given).decode(errors='replace')

    def list(self, options=''):
        """Run the lister, return the Listing."""
        return listing.parse(
            self.run(f'page-cache-lister {options} | cat'))

    def meminfo(self):
        """Name -> KiB."""
        lines = self.text('cat /proc/meminfo').splitlines()
        return {line.split(':')[0]: int(line.split()[1]) for line in lines}

    def page_flags(self):
        """/proc/kpageflags, a number a page."""
        data = memoryview(self.run('cat /proc/kpageflags'))
        return data.cast('Q')

    def clean_pages(self, flags):
        """Pages of files the kernel holds clean and up to date.

        Those of the initial file system (not on a disk) are told apart by
        being on no disk's list: they are swap-backed or always dirty.
        """
        not_ours = (
            pageflags.ANON | pageflags.SWAPBACKED | pageflags.DIRTY
            | pageflags.WRITEBACK | pageflags.SLAB | pageflags.BUDDY
            | pageflags.RESERVED | pageflags.PGTABLE)
        wanted = pageflags.LRU | pageflags.UPTODATE
        return {number for number, value in enumerate(flags)
                if value & (wanted | not_ours) == wanted}

    def memory(self, directory):
        """Stop the guest, dump its memory, return it as bytes."""
        self.guest.pause()
        path = pathlib.Path(directory) / 'memory'
        self.guest.qmp('pmemsave', val=self.memory_at,
                       size=self.memory_mib << 20, filename=str(path))
        data = path.read_bytes()
        path.unlink()
        return data

    def verify(self, found, directory, *flags):
        """Compare a listing with memory and disks; the guest stays stopped.

        :param flags: page_flags() taken just before or after the listing;
            with several, a page has to be clean in all of them
        """
        memory = self.memory(directory)
        contents = [pathlib.Path(disk.path).read_bytes()
                    for disk in self.disks]
        right, wrong, unwritten, listed = 0, [], 0, set()
        for extent in found.extents:
            for page in range(extent.pages):
                gpa = extent.gpa + page * PAGE
                offset = extent.offset + page * PAGE
                listed.add(gpa // PAGE)
                at = gpa - self.memory_at
                held = memory[at:at + PAGE]
                stored = contents[extent.disk][offset:offset + PAGE]
                if held == stored:
                    right += 1
                elif extent.kind == listing.METADATA and all(
                        one == other or not other
                        for one, other in zip(held, stored, strict=True)):
                    unwritten += 1
                else:
                    wrong.append((gpa, extent.disk, offset, extent.kind))
        clean = set.intersection(*map(self.clean_pages, flags)) if flags \
            else set()
        # Holes, and what is allocated but not written: nothing to fetch.
        clean = {page for page in clean
                 if any(memory[page * PAGE - self.memory_at:
                               (page + 1) * PAGE - self.memory_at])}
        return Comparison(right, wrong, unwritten, clean, listed)


def make_disk(path, mib, kind, *options):
    """An image with an empty file system: ext4, xfs, btrfs or none."""
    with open(path, 'wb') as disk:
        disk.truncate(mib << 20)
    tool = {'ext4': ['/sbin/mke2fs', '-q', '-F', '-t', 'ext4', '-E',
                     'lazy_itable_init=0'],
            'xfs': ['/sbin/mkfs.xfs', '-q', '-f'],
            'btrfs': ['/sbin/mkfs.btrfs', '-q', '-f']}.get(kind)
    if tool:
        subprocess.run([*tool, *options, path], check=True,
                       stdin=subprocess.DEVNULL, capture_output=True)
    return spec.Disk(path=path, cache='writeback')
