# SPDX-License-Identifier: Apache-2.0
"""A sign on a file that other hosts see and that is gone with its maker.

A shared lock on one byte, drawn at random from far behind the end of any
image: a host that finds that byte locked, and the byte beside it not,
has the same file open.  It needs no right to write, touches no content,
and the kernel removes it when the process ends.  Network file systems
carry locks between hosts (NFS, CephFS, GlusterFS), unless they are
mounted to keep them local; then the byte is found free, and nothing is
proven.

QEMU locks single bytes from 100 to 263, so they do not meet.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import secrets
import struct
import threading

#: Offsets are drawn from FIRST to 2 * FIRST - 1; off_t ends there.
FIRST = 2 ** 62
#: The byte that the one who writes a file locks.
_CLAIM = FIRST - 1
#: Locks held at a time by one process.
MAX_HELD = 4096

# struct flock of 64 bit Linux: l_type, l_whence, l_start, l_len, l_pid
_FLOCK = struct.Struct('hhqqi0q')

_held: dict[int, int] = {}
_numbers = itertools.count(1)
_guard = threading.Lock()


def claim(fd: int) -> None:
    """Keep others from claiming a file, as long as fd has it open.

    Processes that inherit fd have the lock, too.

    :param fd: open for writing
    :raises OSError: somebody else has it, or the file system has no locks
    """
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(
        fcntl.F_WRLCK, os.SEEK_SET, _CLAIM, 1, 0))


def draw() -> int:
    """Return the offset of a byte to lock; the one behind it is free."""
    return FIRST + 2 * secrets.randbelow(FIRST // 2)


def hold(fd: int, offset: int) -> int:
    """Lock one byte of the file fd has open until release.

    fd stays the caller's.

    :returns: number for release
    :raises OSError: the file system has no locks, or somebody's is there
    """
    # An open file description of its own: locks of the kind "POSIX" go
    # when any descriptor of the file is closed, these do not.
    own = os.open('/proc/self/fd/%d' % fd, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.fcntl(own, fcntl.F_OFD_SETLK, _FLOCK.pack(
            fcntl.F_RDLCK, os.SEEK_SET, offset, 1, 0))
        with _guard:
            if len(_held) >= MAX_HELD:
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
            number = next(_numbers)
            _held[number] = own
    except BaseException:
        os.close(own)
        raise
    return number


def release(number: int) -> None:
    """Give up a lock; idempotent."""
    with _guard:
        own = _held.pop(number, None)
    if own is not None:
        os.close(own)


def is_held(fd: int, offset: int) -> bool:
    """Return whether a lock is on exactly one byte, by somebody else.

    :raises OSError: the file system has no locks
    """
    return _conflicts(fd, offset) and not _conflicts(fd, offset + 1)


def _conflicts(fd: int, offset: int) -> bool:
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FLOCK.pack(
        fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0))
    return _FLOCK.unpack(answer)[0] != fcntl.F_UNLCK
