# SPDX-License-Identifier: Apache-2.0
"""A challenge beside an image: a file that is there for one migration.

Who finds it in the directory of an image, on the image's file system,
sees the same directory; if the image has the same inode number there,
it is the same image.  It serves where locks do not cross hosts.

The file is called PREFIX and 64 hexadecimal digits, and holds 64 others.
The maker removes it; what a process that was killed left behind is
removed when another one is made there.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import itertools
import os
import secrets
import stat
import time

from nova_dedup_migrate.images import paths

PREFIX = '.dedup-migrate-'
#: Seconds after which a challenge is somebody's litter.
STALE = 3600.0
_LENGTH = 64
#: Entries of a directory that are looked at for litter.
_MAX_ENTRIES = 4096


@contextlib.contextmanager
def made(path: str) -> Iterator[tuple[str, str]]:
    """Make a challenge beside path; give its name and content.

    :raises OSError: the directory is not ours to write
    """
    directory = os.open(os.path.dirname(path),
                        os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        name, content = secrets.token_hex(32), secrets.token_hex(32)
        # Others read it on the other host; it holds nothing.
        fd = os.open(PREFIX + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL
                     | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644,
                     dir_fd=directory)
        try:
            try:
                os.write(fd, content.encode())
            finally:
                # Network file systems write it out here.
                os.close(fd)
            _sweep(directory)
            yield name, content
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(PREFIX + name, dir_fd=directory)
    finally:
        os.close(directory)


def is_there(path: str, roots: Sequence[str], device: int, name: str,
             content: str) -> bool:
    """Return whether the challenge is beside path.

    :param device: st_dev of the image
    :raises OSError, PathRefused: as paths.open_beside
    """
    with paths.open_beside(path, PREFIX + name, roots) as fd:
        return (os.fstat(fd).st_dev == device
                and os.read(fd, _LENGTH + 1) == content.encode())


def _sweep(directory: int) -> None:
    listing = os.open('.', os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC,
                      dir_fd=directory)
    try:
        with os.scandir(listing) as entries:
            for entry in itertools.islice(entries, _MAX_ENTRIES):
                if entry.name.startswith(PREFIX):
                    _remove_stale(entry.name, directory)
    finally:
        os.close(listing)


def _remove_stale(name: str, directory: int) -> None:
    # Another process may remove it at the same time.
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if (stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
                and abs(time.time() - status.st_mtime) > STALE):
            os.unlink(name, dir_fd=directory)
