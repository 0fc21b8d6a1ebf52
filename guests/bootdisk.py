# SPDX-License-Identifier: Apache-2.0
"""A disk image a machine boots from.

A master boot record with Syslinux's code; a FAT partition with Syslinux,
kernel and initial ramdisk; a partition with anything else.  Made without
privileges.
"""

import os
from pathlib import Path
import struct

from guests.errors import BuildError
from guests.errors import run

MIB = 1 << 20
_SECTOR = 512
_BOOT_CODE = Path('/usr/lib/syslinux/mbr/mbr.bin')
#: Bytes; the second partition begins where the first ends.
_FIRST, _FIRST_SIZE = MIB, 31 * MIB
DATA_AT = _FIRST + _FIRST_SIZE
_FAT16_LBA, _LINUX = 0x0e, 0x83


def partition_table(code, data_size):
    """The first sector: boot code and two partitions, one to boot from.

    :param code: at most 440 bytes
    :param data_size: bytes of the second partition
    """
    if len(code) > 440:
        raise ValueError('a boot sector has room for 440 bytes of code, '
                         'not for %d' % len(code))
    entries = b''.join(
        struct.pack('<B3sB3sII', flag, b'\0' * 3, kind, b'\0' * 3,
                    start // _SECTOR, size // _SECTOR)
        for flag, kind, start, size in (
            (0x80, _FAT16_LBA, _FIRST, _FIRST_SIZE),
            (0, _LINUX, DATA_AT, data_size)))
    return (code.ljust(440, b'\0') + b'\0' * 6 + entries.ljust(64, b'\0')
            + b'\x55\xaa')


def assemble(image: Path, kernel: Path, initrd: Path, config: str,
             data: Path) -> None:
    """Make a disk that boots from its first partition.

    :param image: the raw image to be, in a directory that may be written to
    :param kernel, initrd: together at most 30 MiB
    :param config: of Syslinux, which finds them as kernel and initrd
    :param data: what its second partition is to hold
    :raises BuildError: a tool is missing or fails
    """
    if not _BOOT_CODE.exists():
        raise BuildError('%s is missing: install the packages syslinux, '
                         'syslinux-common and mtools' % _BOOT_CODE)
    size = os.stat(data).st_size
    image.touch()
    os.truncate(image, DATA_AT + size + MIB)
    fat = '%s@@%d' % (image, _FIRST)
    run(['mformat', '-i', fat, '-h', '64', '-s', '32', '-T',
         str(_FIRST_SIZE // _SECTOR), '-H', str(_FIRST // _SECTOR), '::'])
    told = image.with_name('syslinux.cfg')
    told.write_text(config)
    for source, target in ((kernel, 'kernel'), (initrd, 'initrd'),
                           (told, 'syslinux.cfg')):
        run(['mcopy', '-i', fat, source, '::' + target])
    told.unlink()
    run(['syslinux', '--install', '--offset', str(_FIRST), image])
    run(['dd', 'if=%s' % data, 'of=%s' % image, 'bs=1M', 'status=none',
         'seek=%d' % (DATA_AT // MIB), 'conv=notrunc,sparse'])
    with image.open('r+b') as disk:
        disk.write(partition_table(_BOOT_CODE.read_bytes(), size))
