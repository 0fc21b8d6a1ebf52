# SPDX-License-Identifier: Apache-2.0
"""Data disks: ext4 full of files with known content, made unprivileged.

A pristine disk is built once and cached; what a guest gets is a copy, as
its writers change the files and only the running guest knows how.
"""

import dataclasses
from pathlib import Path
import shutil
import struct

from guests import cache
from guests import programs
from guests.errors import BuildError
from guests.errors import run

FORMATS = ('raw', 'qcow2', 'qcow2-backed')
LAYOUTS = ('whole', 'partition')

FILE_MIB = 4
MIB = 1 << 20

# Where DOS put the first partition: 512 B sectors, not a multiple of 4 KiB.
_FIRST_SECTOR = 63
_SECTOR = 512

_SMALL_MIB = 48


@dataclasses.dataclass(frozen=True)
class DataDisk:
    """A disk for one guest.

    path: what QEMU opens; format: raw or qcow2, for QEMU;
    base: the backing file, or None;
    mib: MiB of file data; offset: byte at which the file system begins.
    """

    path: Path
    format: str
    base: Path | None
    mib: int
    seed: int
    offset: int

    @property
    def files(self) -> int:
        return -(-self.mib // FILE_MIB)

    def own_copy(self, directory: Path) -> 'DataDisk':
        """Copy it, backing file included, while no guest writes to it."""
        directory.mkdir(parents=True, exist_ok=True)
        path = cache.copy(self.path, directory / self.path.name)
        base = self.base
        if base is not None:
            base = cache.copy(base, directory / base.name)
        return dataclasses.replace(self, path=path, base=base)


def _boot_record(sectors: int) -> bytes:
    """A master boot record with one Linux partition."""
    entry = struct.pack(
        '<B3sB3sII', 0, b'\0' * 3, 0x83, b'\0' * 3, _FIRST_SECTOR, sectors
    )
    return b'\0' * 446 + entry + b'\0' * 48 + b'\x55\xaa'


def _build_raw(work: Path, mib: int, seed: int, offset: int) -> None:
    files = -(-mib // FILE_MIB)
    content = work / 'content'
    content.mkdir()
    programs.compile_fill(work / 'fill')
    pages = FILE_MIB * MIB // 4096
    run([work / 'fill', content, str(seed), str(files), str(pages)])
    (content / 'manifest').write_text(f'{seed} {files} {pages}\n')
    # Inode tables, journal and bitmaps need some room beside the files,
    # and so do the small files a guest may make.
    size_mib = files * FILE_MIB * 65 // 64 + 24 + _SMALL_MIB
    image = work / 'disk.raw'
    options = 'lazy_itable_init=0,root_owner=0:0'
    if offset:
        options += f',offset={offset}'
    run(
        ['/sbin/mke2fs', '-q', '-t', 'ext4', '-F', '-L', 'workload']
        + ['-m', '0', '-b', '4096', '-J', 'size=8', '-E', options]
        + ['-O', '^resize_inode', '-N', str(files + 256)]
        + ['-d', content, image, f'{size_mib}M']
    )
    with open(image, 'r+b') as disk:
        size = offset + size_mib * MIB
        size += -size % MIB
        disk.truncate(size)
        if offset:
            disk.write(_boot_record(size_mib * MIB // _SECTOR))
    shutil.rmtree(content)
    (work / 'fill').unlink()


def _pristine(mib: int, seed: int, offset: int) -> Path:
    name = cache.key(
        f'{mib} {seed} {offset}',
        [*programs.fill_sources(), Path(__file__)],
    )
    place = cache.entry(
        'disk', name, lambda work: _build_raw(work, mib, seed, offset)
    )
    return place / 'disk.raw'


def make_disk(
    directory: Path,
    mib: int = 256,
    seed: int = 1,
    format: str = 'raw',
    layout: str = 'whole',
    qemu_img: Path | str = 'qemu-img',
    name: str = 'data',
) -> DataDisk:
    """A fresh disk in `directory` with at least `mib` MiB of files.

    :param format: raw; qcow2; qcow2-backed: an empty qcow2 overlay over
        a raw base image, as Nova has it
    :param layout: whole: the file system is the disk; partition: it is in
        a partition that begins at sector 63
    """
    if format not in FORMATS or layout not in LAYOUTS or mib < 1:
        raise BuildError(f'no such disk: {mib} MiB, {format}, {layout}')
    offset = _FIRST_SECTOR * _SECTOR if layout == 'partition' else 0
    source = _pristine(mib, seed, offset)
    directory.mkdir(parents=True, exist_ok=True)
    base = None
    if format == 'raw':
        path = cache.copy(source, directory / f'{name}.raw')
    elif format == 'qcow2':
        path = directory / f'{name}.qcow2'
        run([qemu_img, 'convert', '-O', 'qcow2', source, path])
    else:
        path = directory / f'{name}.qcow2'
        base = cache.copy(source, directory / f'{name}-base.raw')
        # The name is relative, so that a copy of both files is a copy.
        run(
            [qemu_img, 'create', '-q', '-f', 'qcow2', '-F', 'raw']
            + ['-b', base.name, path.name],
            cwd=directory,
        )
    return DataDisk(
        path, 'raw' if format == 'raw' else 'qcow2', base, mib, seed, offset
    )
