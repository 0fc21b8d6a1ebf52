# SPDX-License-Identifier: Apache-2.0
"""The guest the lister is tested in: Debian's kernel, busybox, the lister.

Its init process runs the lines it is sent by a shell and answers each with
"STATUS LENGTH" and that many bytes of output.
"""

import contextlib
import pathlib
import shutil
import subprocess
import tempfile

from guests import cache
from guests import cpio
from guests import errors
from guests import kernel
from guests import programs
from guests.lister import architecture

_MODULES = [
    'crc32c_generic', 'crc32c_intel', 'libcrc32c', 'crc16', 'mbcache',
    'jbd2', 'ext4', 'virtio_pci', 'virtio_blk', 'virtio_scsi',
    'virtio_console', 'scsi_mod', 'sd_mod', 'nvme_core', 'nvme', 'xfs',
    'dm_mod',
]

#: Loaded by the guest's command more-modules: they take their time.
_MORE_MODULES = [
    'xor', 'raid6_pq', 'zstd_compress', 'btrfs', 'overlay', 'dm_crypt',
    'xts', 'ecb', 'cbc', 'cts', 'aes_generic', 'sha512_generic', 'hmac',
    'md_mod', 'raid1',
]

#: Programs of this machine that tests use in the guest, with libraries.
_PROGRAMS = ('dmsetup', 'lvm')

_INIT = r'''#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/sbin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
while read -r name; do insmod /modules/$name; done </modules/list
mkdir -p /mnt /run /etc
port=
while [ -z "$port" ]; do
    for one in /sys/class/virtio-ports/*; do
        [ "$(cat $one/name 2>/dev/null)" = control ] && port=${one##*/}
    done
    [ -e "/dev/$port" ] || port=
done
exec 3<>/dev/$port
echo 'ready 0' >&3
while true; do
    if read -r line <&3; then
        sh -c "$line" >/tmp/.out 2>&1 </dev/null 3>&-
        echo "$? $(stat -c %s /tmp/.out)" >&3
        cat /tmp/.out >&3
    else
        sleep 0.1
    fi
done
'''


_MORE = '''#!/bin/busybox sh
while read -r name; do insmod /modules/$name; done </modules/more
'''


def missing():
    """Why the guest cannot be built and run here, or None."""
    machine = architecture.of(kernel.debian_kernel().version)
    for name in ('busybox', machine.tools + 'gcc', 'make',
                 machine.emulator or 'make'):
        if shutil.which(name) is None:
            return f'{name} is not installed'
    return None


def _busybox(linux, machine):
    """Ours, or what came with the kernel of another architecture."""
    if machine is architecture.X86:
        return pathlib.Path(shutil.which('busybox'))
    return next(path for path in (linux.place / 'bin/busybox',
                                  linux.place / 'usr/bin/busybox')
                if path.is_file())


def _helper(directory, machine):
    path = directory / 'helper'
    subprocess.run(
        [machine.tools + 'gcc', '-O1', '-Wall', '-static', '-o', path,
         '-I', programs.SOURCE, pathlib.Path(__file__).parent / 'helper.c',
         programs.SOURCE / 'age.c'], check=True)
    return path


def _build(linux, work):
    machine = architecture.of(linux.version)
    files = {'/bin/busybox': _busybox(linux, machine).read_bytes()}
    for name in _PROGRAMS if machine is architecture.X86 else ():
        # tests that need one that is not installed are skipped
        with contextlib.suppress(errors.BuildError):
            files.update(programs.with_libraries(name))
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        files['/bin/page-cache-lister'] = programs.compile_lister(
            directory, machine.tools).read_bytes()
        files['/bin/helper'] = _helper(directory, machine).read_bytes()
    base = kernel.in_load_order(_MODULES, linux.module_files())
    modules = kernel.in_load_order(_MODULES + _MORE_MODULES,
                                   linux.module_files())
    for name, data in modules.items():
        files[f'/modules/{name}.ko'] = data
    files['/modules/list'] = ''.join(
        f'{name}.ko\n' for name in base).encode()
    files['/modules/more'] = ''.join(
        f'{name}.ko\n' for name in modules if name not in base).encode()
    files['/bin/more-modules'] = _MORE.encode()
    files['/init'] = _INIT.encode()
    with open(work / 'initrd', 'wb') as out:
        cpio.write_tree(out, ('proc', 'sys', 'tmp', 'mnt', 'sbin', 'etc',
                              'run'), files)
    (work / 'kernel').write_bytes(linux.image.read_bytes())


def guest_image():
    """Return (kernel, initrd, Architecture), built if they are not cached.
    """
    linux = kernel.debian_kernel()
    here = pathlib.Path(__file__)
    sources = [here, here.parent / 'helper.c', *programs.age_sources(),
               *programs.lister_sources()]
    name = cache.key('lister', str(linux.image), sources)
    place = cache.entry('guest', name, lambda work: _build(linux, work))
    return (place / 'kernel', place / 'initrd',
            architecture.of(linux.version))
