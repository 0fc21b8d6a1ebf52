# SPDX-License-Identifier: Apache-2.0
"""Guest RAM as files, and their comparison byte for byte."""

import dataclasses
import pathlib

from nova_dedup_migrate.hypervisor.memory import GIB
from nova_dedup_migrate.hypervisor.memory import PAGE
from nova_dedup_migrate.hypervisor.memory import RamRange
from nova_dedup_migrate.hypervisor.memory import ranges

#: Bytes compared at once; only chunks that differ are looked at closely.
CHUNK = 1 << 20
#: Seconds that writing a GiB of guest memory to a file may take.
_SAVE_S_PER_GIB = 120


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


def save(guest, directory):
    """Write all RAM of a guest into files; see testkit.guest.Guest.

    :param guest: qmp_guest.QmpGuest
    :param directory: of the host its QEMU runs on
    :returns: RamImage
    """
    directory = pathlib.Path(directory).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for part in ranges(guest):
        path = directory / ('ram-%x.bin' % part.start)
        guest.execute('pmemsave',
                      {'val': part.start, 'size': part.size,
                       'filename': str(path)},
                      60 + _SAVE_S_PER_GIB * part.size / GIB)
        files.append(RamFile(part, path))
    return RamImage(tuple(files))


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


def keep(directory, addresses, **images):
    """Write pages of images into files of their own, ADDRESS.NAME.

    :param addresses: guest physical ones, from a Comparison
    :param images: RamImage, by name
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for address in addresses:
        for name, image in images.items():
            file = next(f for f in image.files
                        if 0 <= address - f.range.start < f.range.size)
            with file.path.open('rb') as content:
                content.seek(address - file.range.start)
                page = content.read(PAGE)
            (directory / f'{address:#x}.{name}').write_bytes(page)


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
