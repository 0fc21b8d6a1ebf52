# SPDX-License-Identifier: Apache-2.0
"""Guest RAM as files, and their comparison byte for byte."""

import dataclasses
import pathlib

from nova_dedup_migrate.hypervisor import decode

GIB = 1 << 30
PAGE = 4096
#: Bytes compared at once; only chunks that differ are looked at closely.
CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True)
class RamRange:
    """Guest physical addresses [start, start + size) that are RAM."""

    start: int
    size: int


@dataclasses.dataclass(frozen=True)
class RamFile:
    """The content of a range, in a file of exactly that size."""

    range: RamRange
    path: pathlib.Path


@dataclasses.dataclass(frozen=True)
class RamImage:
    """All RAM of a guest."""

    files: tuple[RamFile, ...]

    @property
    def size(self):
        """Bytes of RAM."""
        return sum(f.range.size for f in self.files)

    def remove(self):
        """Delete the files."""
        for file in self.files:
            file.path.unlink(missing_ok=True)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Outcome of compare().

    :ivar pages: pages compared
    :ivar differing: how many of them differ
    :ivar addresses: guest physical addresses of the first of these
    """

    pages: int
    differing: int
    addresses: tuple[int, ...]

    @property
    def identical(self):
        return self.differing == 0


def boot_ranges(machine, size):
    """RAM of a PC without memory devices.

    RAM that does not fit below the PCI hole goes on at 4 GiB.  Source:
    pc_init1() in hw/i386/pc_piix.c, pc_q35_init() in hw/i386/pc_q35.c.

    :param machine: QEMU's name of the type, as pc-q35-10.0 or pc
    :param size: bytes
    """
    if 'q35' in machine:
        below = 2 * GIB if size >= 0xb0000000 else size
    else:
        below = 3 * GIB if size >= 0xe0000000 else size
    ranges = [RamRange(0, below)]
    if size > below:
        ranges.append(RamRange(4 * GIB, size - below))
    return tuple(ranges)


def ranges(guest):
    """Find the RAM of a guest, plugged memory devices included."""
    machine = decode.text(
        guest.qmp('qom-get', path='/machine', property='type'), 'type')
    summary = decode.mapping(guest.qmp('query-memory-size-summary'),
                             'query-memory-size-summary')
    found = list(boot_ranges(
        machine, decode.count(summary['base-memory'], 'base-memory')))
    for device in guest.qmp('query-memory-devices'):
        data = device['data']
        if device['type'] in ('dimm', 'nvdimm') and data.get('addr'):
            found.append(RamRange(data['addr'], data['size']))
    return tuple(found)


def compare(one, other, limit=64):
    """Compare two images of the same shape.

    :param limit: most addresses to return
    :returns: Comparison
    :raises ValueError: the images cover other addresses
    """
    shapes = [[f.range for f in image.files] for image in (one, other)]
    if shapes[0] != shapes[1]:
        raise ValueError('RAM layouts differ: %s and %s' % tuple(shapes))
    differing = 0
    addresses = []
    for ours, theirs in zip(one.files, other.files, strict=True):
        for offset in _differing(ours, theirs):
            differing += 1
            if len(addresses) < limit:
                addresses.append(ours.range.start + offset)
    return Comparison(pages=one.size // PAGE, differing=differing,
                      addresses=tuple(addresses))


def _differing(ours, theirs):
    """Yield offsets of the pages that differ."""
    left, right = bytearray(CHUNK), bytearray(CHUNK)
    done = 0
    with ours.path.open('rb', 0) as a, theirs.path.open('rb', 0) as b:
        while done < ours.range.size:
            want = min(CHUNK, ours.range.size - done)
            got = _fill(a, left, want), _fill(b, right, want)
            if got != (want, want):
                raise ValueError('a RAM file is shorter than its range')
            if left != right:
                for page in range(0, want, PAGE):
                    if left[page:page + PAGE] != right[page:page + PAGE]:
                        yield done + page
            done += want


def _fill(file, buffer, want):
    view = memoryview(buffer)[:want]
    done = 0
    while done < want:
        got = file.readinto(view[done:])
        if not got:
            break
        done += got
    return done
