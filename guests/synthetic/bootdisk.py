# SPDX-License-Identifier: Apache-2.0
"""The disk image from which this guest boots, and images of its files.

The page-cache lister is in the initial ramdisk; the second partition has the
files that the guest reads.  Images are cached.
"""

from pathlib import Path

from guests import bootdisk
from guests import cache
from guests.synthetic.disk import make_disk
from guests.synthetic.image import guest_image
from guests.synthetic.workload import Workload

_SOURCES = [Path(__file__), Path(bootdisk.__file__)]


def syslinux_config(workload):
    return ('DEFAULT linux\nPROMPT 0\nLABEL linux\n  KERNEL kernel\n'
            '  INITRD initrd\n  APPEND %s\n' % workload.append)


def build(workload: Workload, data: int) -> Path:
    """The raw image for a workload, built if it is not cached.

    :param data: MiB of files in its second partition
    :raises BuildError: a tool is missing or fails
    """
    linux = guest_image(lister=True)
    name = cache.key(str(linux.kernel), syslinux_config(workload),
                     str(data), _SOURCES)

    def fill(work):
        _fill(work, linux, workload, data)

    return cache.entry('bootdisk', name, fill) / 'disk.raw'


def build_data(data: int, seed: int) -> Path:
    """A raw image with files and nothing else, likewise.

    :param data: MiB of files
    :param seed: of their content
    :raises BuildError: a tool is missing or fails
    """
    name = cache.key('data', str(data), str(seed), _SOURCES)
    return cache.entry('bootdisk', name, lambda work: make_disk(
        work, data, seed, name='disk')) / 'disk.raw'


def _fill(work, linux, workload, data_mib):
    data = make_disk(work, data_mib).path
    bootdisk.assemble(work / 'disk.raw', linux.kernel, linux.initrd,
                      syslinux_config(workload), data)
    data.unlink()
