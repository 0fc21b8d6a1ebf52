# SPDX-License-Identifier: Apache-2.0
"""Which file system a file is on, in words that other hosts understand."""

from __future__ import annotations

import os

#: File systems whose name is the same on every host that mounts them, and
#: which give a file the same inode number everywhere.
NETWORK = frozenset(('nfs', 'nfs4', 'ceph', 'cifs', 'lustre', 'gpfs',
                     'beegfs', 'fuse.glusterfs', 'fuse.ceph',
                     'fuse.quobyte', 'fuse.vstorage'))
_MOUNTINFO = '/proc/self/mountinfo'


def describe(device: int) -> str | None:
    """Return 'type source' of a network file system, None of others.

    :param device: st_dev of a file on it
    """
    wanted = '%d:%d' % (os.major(device), os.minor(device))
    with open(_MOUNTINFO, encoding='utf-8', errors='replace') as mounts:
        for line in mounts:
            # proc(5): id, parent, device, root, point, options, any number
            # of optional fields, '-', type, source, options
            left, _, right = line.partition(' - ')
            if left.split(' ')[2] == wanted:
                kind, source = right.split(' ')[:2]
                return '%s %s' % (kind, source) if kind in NETWORK else None
    return None
