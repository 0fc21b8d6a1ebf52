# SPDX-License-Identifier: Apache-2.0
"""What guest memory consists of, by looking at every page.

This is independent of any mechanism: a page is a duplicate when its very
bytes stand somewhere on the disk.
"""

from collections.abc import Iterator
import dataclasses
import hashlib
from pathlib import Path

from testkit import memory

PAGE = 4096
_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True)
class Content:
    """Pages of guest memory: all, non-zero, non-zero and on the disk."""

    total: int
    nonzero: int
    duplicate: int

    @property
    def unique_bytes(self) -> int:
        """What no storage holds and every migration must send."""
        return (self.nonzero - self.duplicate) * PAGE

    @property
    def share(self) -> float:
        """Duplicates as a share of the pages in use, 0 to 1."""
        return self.duplicate / self.nonzero if self.nonzero else 0.0


def _pages(path: Path, offset: int = 0) -> Iterator[bytes]:
    """Whole pages of a file that are not zero, from an offset on."""
    zeros = bytes(_CHUNK)
    with open(path, 'rb') as file:
        file.seek(offset)
        while chunk := file.read(_CHUNK):
            if chunk == zeros:
                continue
            for at in range(0, len(chunk) - PAGE + 1, PAGE):
                page = chunk[at : at + PAGE]
                if page != zeros[:PAGE]:
                    yield page


def _digest(page: bytes) -> bytes:
    return hashlib.blake2b(page, digest_size=16).digest()


def analyse(
    ram: memory.RamImage, images: list[Path], offset: int = 0
) -> Content:
    """Compare memory with the files that make up the disk.

    :param images: raw or qcow2; clusters lie aligned in both, so that
        qcow2 needs no decoding
    :param offset: byte of the disk at which the file system begins
    """
    on_disk = set()
    for image in images:
        on_disk.update(map(_digest, _pages(image, offset % PAGE)))
    nonzero = duplicate = 0
    for part in ram.files:
        for page in _pages(part.path):
            nonzero += 1
            duplicate += _digest(page) in on_disk
    return Content(ram.size // PAGE, nonzero, duplicate)
