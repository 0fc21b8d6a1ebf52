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

import contextlib
import os
import stat

DEV = '/dev'


class PathRefused(Exception):
    """A path that must not be opened.

    :ivar path: as in the request
    :ivar reason: why, in words
    """

    template = '{path} is not opened: {reason}'

    def __init__(self, path, reason):
        self.path = path
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self):
        return self.template.format(path=self.path, reason=self.reason)


@contextlib.contextmanager
def open_path(path, roots):
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
def open_file(path, roots):
    """Give a descriptor of a regular file, read-only; as open_path."""
    with open_path(path, roots) as handle:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise PathRefused(path, 'it is no regular file')
        with _closing(_reopen(handle)) as fd:
            yield fd


@contextlib.contextmanager
def open_device(path, roots):
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
def open_block(path, roots):
    """Give a descriptor of a block device, read-only; as open_path."""
    with open_device(path, roots) as handle, \
            _closing(_reopen(handle)) as fd:
        yield fd


@contextlib.contextmanager
def open_beside(path, name, roots):
    """Give a descriptor of the file name in path's directory."""
    with _directory(path, roots) as directory, _closing(os.open(
            name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC,
            dir_fd=directory)) as handle:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise PathRefused(path, 'its challenge is no regular file')
        with _closing(_reopen(handle)) as fd:
            yield fd


def reopen(fd, flags):
    """Return a new descriptor of what fd has open, with other flags."""
    return os.open('/proc/self/fd/%d' % fd, flags | os.O_CLOEXEC)


def _reopen(handle):
    return reopen(handle, os.O_RDONLY | os.O_NONBLOCK)


@contextlib.contextmanager
def _closing(fd):
    try:
        yield fd
    finally:
        os.close(fd)


def _plainly(path):
    return _closing(os.open(path, os.O_PATH | os.O_CLOEXEC))


@contextlib.contextmanager
def _beneath(path, roots):
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
def _directory(path, roots):
    """Give an O_PATH descriptor of path's directory."""
    _check_form(path)
    root = next((root for root in roots
                 if path.startswith(root.rstrip('/') + '/')), None)
    if root is None:
        raise PathRefused(path, 'it is not below a directory with disks')
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    below = os.path.relpath(path, root).split('/')[:-1]
    # The operator named root: links in it and to it are his.
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


def _check_form(path):
    if not path.startswith('/') or os.path.normpath(path) != path:
        raise PathRefused(path, 'it is not absolute or not in its '
                          'shortest form')
