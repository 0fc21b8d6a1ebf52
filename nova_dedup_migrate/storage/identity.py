# SPDX-License-Identifier: Apache-2.0
"""Whether a path still names the file that was filled, unchanged.

QEMU's file locks do not keep another process from writing to a file that
is opened for a migration.  The change time of an inode changes with every
write, truncation, rename and chown, so what was proven holds while it is
the same.

The numbers of a block device are those of the device.  The times of its node
say nothing: udev changes them after each writer.
"""

from __future__ import annotations

import dataclasses
import os
import stat

from nova_dedup_migrate.storage import errors


@dataclasses.dataclass(frozen=True)
class Identity:
    """A file at one time: numbers of fstat(2)."""

    device: int
    inode: int
    size: int
    ctime_ns: int

    @classmethod
    def of(cls, file: int | str) -> Identity:
        """Return that of a descriptor or path.

        :raises OSError: as stat(2)
        """
        found = (os.fstat(file) if isinstance(file, int)
                 else os.stat(file, follow_symlinks=False))
        if stat.S_ISBLK(found.st_mode):
            return cls(found.st_rdev, found.st_ino, 0, 0)
        return cls(found.st_dev, found.st_ino, found.st_size,
                   found.st_ctime_ns)

    def check(self, path: str) -> None:
        """Return if path names this file and it has not changed.

        :raises TargetReplaced:
        """
        try:
            now = Identity.of(path)
        except OSError as error:
            raise errors.TargetReplaced(path=path, reason=error) from error
        for name in ('device', 'inode', 'size', 'ctime_ns'):
            if getattr(self, name) != getattr(now, name):
                raise errors.TargetReplaced(
                    path=path, reason='its %s is %d instead of %d' % (
                        name.removesuffix('_ns'), getattr(now, name),
                        getattr(self, name)))
