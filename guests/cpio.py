# SPDX-License-Identifier: Apache-2.0
"""Writes an initramfs: a cpio archive in the "newc" format.

Format: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
Everything belongs to root and carries time 0, so the same input gives the
same archive.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import pathlib
import stat
from typing import BinaryIO

_TRAILER = 'TRAILER!!!'


class CpioWriter:
    """Appends entries to a binary file; `close` writes the trailer."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._inode = 0

    def _pad(self, length: int) -> None:
        self._out.write(b'\0' * (-length % 4))

    def _entry(
        self,
        name: str,
        mode: int,
        data: bytes = b'',
        device: tuple[int, int] = (0, 0),
    ) -> None:
        path = name.encode() + b'\0'
        if len(data) >= 1 << 32:
            raise ValueError(f'{name}: too large for cpio')
        self._inode += 1
        fields = (
            self._inode,
            mode,
            0,  # uid
            0,  # gid
            1,  # nlink
            0,  # mtime
            len(data),
            0,  # major, minor of the archive's file system
            0,
            *device,
            len(path),
            0,  # checksum, not used by newc
        )
        header = b'070701' + b''.join(b'%08X' % f for f in fields)
        self._out.write(header + path)
        self._pad(len(header) + len(path))
        self._out.write(data)
        self._pad(len(data))

    def directory(self, name: str) -> None:
        self._entry(name, stat.S_IFDIR | 0o755)

    def file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        self._entry(name, stat.S_IFREG | mode, data)

    def character_device(self, name: str, major: int, minor: int) -> None:
        self._entry(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def close(self) -> None:
        self._entry(_TRAILER, 0)


def write_tree(out: BinaryIO, directories: Iterable[str],
               files: Mapping[str, bytes]) -> None:
    """Write an initramfs with a console.

    :param directories: names of those that no file is in
    :param files: {absolute path: content}; all may be run
    """
    wanted = {'dev'}
    for path in (*(f'{name}/x' for name in directories),
                 *(name.lstrip('/') for name in files)):
        wanted.update(map(str, pathlib.PurePosixPath(path).parents))
    wanted.discard('.')
    archive = CpioWriter(out)
    for directory in sorted(wanted):
        archive.directory(directory)
    archive.character_device('dev/console', 5, 1)
    for path, data in files.items():
        archive.file(path[1:], data, 0o755)
    archive.close()
