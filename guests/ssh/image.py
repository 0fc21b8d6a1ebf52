# SPDX-License-Identifier: Apache-2.0
"""The guest to which Tempest logs in: busybox and an SSH server.

It takes its address and the keys of its users from its config drive, and
ends when its power button is pressed.  All of it is in the initial ramdisk;
the second partition of its disk, /var/tmp, is for files of tests.
"""

from pathlib import Path

from guests import bootdisk
from guests import cache
from guests import cpio
from guests import kernel
from guests import programs
from guests.synthetic.disk import make_disk

_INIT = Path(__file__).with_name('init')
_MODULES = [
    'crc32c_generic', 'crc32c_intel', 'libcrc32c', 'crc16', 'mbcache',
    'jbd2', 'ext4', 'virtio_pci', 'virtio_blk', 'virtio_scsi', 'virtio_net',
    'virtio_rng', 'scsi_mod', 'sd_mod', 'cdrom', 'sr_mod', 'libata',
    'ata_piix', 'isofs', 'acpiphp', 'button', 'evdev',
]
#: Not quiet: Tempest reads the console's log, and wants some lines of it.
_CONFIG = ('DEFAULT linux\nPROMPT 0\nLABEL linux\n  KERNEL kernel\n'
           '  INITRD initrd\n  APPEND console=ttyS0 panic=-1 '
           'no_timer_check mitigations=off\n')
_FILES = {
    '/etc/passwd': b'root:*:0:0:root:/root:/bin/sh\n',
    '/etc/group': b'root:*:0:\n',
    '/etc/shells': b'/bin/sh\n',
    # Tests prepend it to what root has to do.
    '/bin/sudo': b'#!/bin/sh\nexec "$@"\n',
    '/bin/mkfs': b'#!/bin/sh\nexec mke2fs -q "$@"\n',
    '/etc/acpi/PWRF/00000080': b'#!/bin/sh\nsync\nexec poweroff -f\n',
}
#: Of this machine: the SSH server, and what tests run in a guest.
_PROGRAMS = ('dropbear', 'blkid', 'lsblk', 'mke2fs')
_DIRECTORIES = ('dev', 'proc', 'sys', 'tmp', 'mnt', 'run', 'sbin', 'config',
                'root/.ssh', 'var/tmp', 'var/log', 'var/run',
                'etc/dropbear')
#: MiB of the test files that every such disk has; there is room for more.
_DATA = 4


def build() -> Path:
    """The raw image, built if it is not cached.

    :raises BuildError: a tool is missing or fails
    """
    linux = kernel.debian_kernel()
    name = cache.key(
        'ssh', str(linux.image),
        [Path(__file__), _INIT, Path(bootdisk.__file__),
         Path(programs.__file__)])
    return cache.entry('bootdisk', name,
                       lambda work: _build(linux, work)) / 'disk.raw'


def _build(linux: kernel.Kernel, work: Path) -> None:
    files = {'/init': _INIT.read_bytes(), **_FILES,
             '/bin/busybox': programs.installed('busybox').read_bytes()}
    for program in _PROGRAMS:
        files.update(programs.with_libraries(program))
    modules = kernel.in_load_order(_MODULES, linux.module_files())
    for module, data in modules.items():
        files[f'/modules/{module}.ko'] = data
    files['/modules/list'] = ''.join(
        f'{module}.ko\n' for module in modules).encode()
    with open(work / 'initrd', 'wb') as out:
        cpio.write_tree(out, _DIRECTORIES, files)
    data = make_disk(work, _DATA).path
    bootdisk.assemble(work / 'disk.raw', linux.image, work / 'initrd',
                      _CONFIG, data)
    data.unlink()
    (work / 'initrd').unlink()
