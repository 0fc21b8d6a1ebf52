# SPDX-License-Identifier: Apache-2.0
"""Opening what a request names, and nothing else.

A path is opened only if it is absolute, in its shortest form and below
a directory the operator allows, no component of it below that directory
is a symbolic link, and it is a regular file or a block device.  Nothing
is ever opened for writing, and nothing that is not one of the two is
opened at all: to open a device can have effects.

Block devices are named through udev's symbolic links, and connected
volumes get new names all the time; of those the end of the links must
be a node directly in /dev.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
from contextlib import AbstractContextManager
import os
import stat

from nova_dedup_migrate import errors

Roots = Sequence[str] | None

DEV = '/dev'


class PathRefused(errors.DedupMigrateError):
    """A path that must not be opened.

    :ivar path: as in the request
    :ivar reason: why, in words
    """

    template = '{path} is not opened: {reason}'

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path=path, reason=reason)
        # the helper of oslo.privsep makes one of these for its client
        self.args = (path, reason)

    def __str__(self) -> str:
        return self.template.format(**self.fields)


@contextlib.contextmanager
def open_path(path: str, roots: Roots) -> Iterator[int]:
    """Give an O_PATH descriptor of a file, which takes no right to it.

    :param roots: directories that are allowed; None for a path that the
        local libvirt named
    :raises PathRefused:
    :raises OSError: as open(2)
    """
    with (_beneath(path, roots) if roots is not None
          else _plainly(path)) as handle:
        yield handle


@contextlib.contextmanager
def open_file(path: str, roots: Roots) -> Iterator[int]:
    """Give a descriptor of a regular file, read-only; as open_path."""
    with open_path(path, roots) as handle:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise PathRefused(path, 'it is no regular file')
        with _closing(_reopen(handle)) as fd:
            yield fd


@contextlib.contextmanager
def open_device(path: str, roots: Roots) -> Iterator[int]:
    """Give an O_PATH descriptor of a block device; as open_path."""
    if roots is not None:
        _check_form(path)
        target = os.path.realpath(path, strict=True)
        if not path.startswith(DEV + '/') or os.path.dirname(target) != DEV:
            raise PathRefused(path, 'it is no device in %s' % DEV)
        path = target
    with _plainly(path) as handle:
        if not stat.S_ISBLK(os.fstat(handle).st_mode):
            raise PathRefused(path, 'it is no block device')
        yield handle


@contextlib.contextmanager
def open_block(path: str, roots: Roots) -> Iterator[int]:
    """Give a descriptor of a block device, read-only; as open_path."""
    with open_device(path, roots) as handle, \
            _closing(_reopen(handle)) as fd:
        yield fd


@contextlib.contextmanager
def open_beside(path: str, name: str, roots: Sequence[str]
                ) -> Iterator[int]:
    """Give a descriptor of the file name in path's directory."""
    with _directory(path, roots) as directory, _closing(os.open(
            name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC,
            dir_fd=directory)) as handle:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise PathRefused(path, 'its challenge is no regular file')
        with _closing(_reopen(handle)) as fd:
            yield fd


def reopen(fd: int, flags: int) -> int:
    """Return a new descriptor of what fd has open, with other flags."""
    return os.open('/proc/self/fd/%d' % fd, flags | os.O_CLOEXEC)


def _reopen(handle: int) -> int:
    return reopen(handle, os.O_RDONLY | os.O_NONBLOCK)


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _plainly(path: str) -> AbstractContextManager[int]:
    return _closing(os.open(path, os.O_PATH | os.O_CLOEXEC))


@contextlib.contextmanager
def _beneath(path: str, roots: Sequence[str]) -> Iterator[int]:
    """Give an O_PATH descriptor of path."""
    with _directory(path, roots) as directory:
        handle = os.open(os.path.basename(path),
                         os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC,
                         dir_fd=directory)
        with _closing(handle):
            if stat.S_ISLNK(os.fstat(handle).st_mode):
                raise PathRefused(path, 'it is a symbolic link')
            yield handle


@contextlib.contextmanager
def _directory(path: str, roots: Sequence[str]) -> Iterator[int]:
    """Give an O_PATH descriptor of path's directory."""
    _check_form(path)
    root = next((root for root in roots
                 if path.startswith(root.rstrip('/') + '/')), None)
    if root is None:
        raise PathRefused(path, 'it is not below a directory with disks')
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    below = os.path.relpath(path, root).split('/')[:-1]
    # The operator named root: links in it and to it are the operator's.
    directory = os.open(root, flags)
    try:
        for part in below:
            try:
                inner = os.open(part, flags | os.O_NOFOLLOW,
                                dir_fd=directory)
            except NotADirectoryError:
                raise PathRefused(
                    path, '%s in it is no directory' % part) from None
            os.close(directory)
            directory = inner
        yield directory
    finally:
        os.close(directory)


def _check_form(path: str) -> None:
    if not path.startswith('/') or os.path.normpath(path) != path:
        raise PathRefused(path, 'it is not absolute or not in its '
                          'shortest form')
