# SPDX-License-Identifier: Apache-2.0
"""What a block device is called, wherever it is attached.

From sysfs: wwid of SCSI and NVMe, the UUID device mapper was given, the
serial number of virtio.  NAA (types 2, 5, 6), EUI-64 and UUIDs are given
by manufacturers and are unique in the world.  The others are as unique
as somebody made them: the iSCSI targets of two servers may well both be
"t10.IET 00010001".  Those need the help of samples of the content.
"""

from __future__ import annotations

import os
import re

_SYS = '/sys/dev/block'
_MAX = 256
_UNIQUE = re.compile(r'naa\.[256][0-9a-f]{15,31}|eui\.[0-9a-f]{16,32}'
                     r'|uuid\.[0-9a-f-]{36}')
# scsi_id puts the type of the identifier before its digits; 3 is NAA
_MULTIPATH_NAA = re.compile(r'mpath-3([0-9a-f]{16,32})')


def identifiers(device: int) -> list[str]:
    """Return the names of a block device, the best first.

    :param device: st_rdev of its node
    """
    folder = '%s/%d:%d' % (_SYS, os.major(device), os.minor(device))
    if os.path.exists(folder + '/partition'):
        # Its name would be that of the whole disk.
        return []
    names = [_read(folder + '/wwid'), _read(folder + '/device/wwid'),
             _device_mapper(_read(folder + '/dm/uuid'))]
    serial = _read(folder + '/serial')
    if serial:
        names.append('serial.' + serial)
    return list(dict.fromkeys(name for name in names if name))


def is_unique(identifier: str) -> bool:
    """Return whether no other device in the world has this name."""
    return _UNIQUE.fullmatch(identifier) is not None


def _device_mapper(uuid: str) -> str:
    match = _MULTIPATH_NAA.fullmatch(uuid)
    if match:
        # so that it is the same with and without multipath
        return 'naa.' + match.group(1)
    return 'dm.' + uuid if uuid else ''


def _read(path: str) -> str:
    try:
        with open(path, encoding='ascii', errors='replace') as file:
            text = ' '.join(file.read(_MAX).split())
    except OSError:
        return ''
    return text if text.isprintable() else ''


def size(device: int) -> int:
    """Return the size of a block device in bytes."""
    text = _read('%s/%d:%d/size' % (_SYS, os.major(device),
                                    os.minor(device)))
    # sysfs counts in 512 bytes, whatever the sectors are
    return int(text) * 512 if text.isdecimal() else 0
