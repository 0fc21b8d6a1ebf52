# SPDX-License-Identifier: Apache-2.0
"""The disk of the Debian guest: one a machine boots from.

    python -m guests.debian.image        prints its path

Debian's packages (base), the program that takes orders (src/), the
lister's package, files for the web server, tables for the database.  No
loop device is used and nothing is mounted: the file system is filled by
mke2fs, and boots as that of the small guest does.
"""

from pathlib import Path
import shutil
import sys

from guests import bootdisk
from guests import cache
from guests import programs
from guests.debian import base
from guests.debian import client
from guests.errors import BuildError
from guests.errors import run

#: MiB of memory that the guest is made for, and of its disk.
MEMORY_MIB, DISK_MIB = 1024, 2048
#: Of pgbench's tables: 15 MiB each.
SCALE = 20
SEED = 1

_HERE = Path(__file__).parent
_PAGES = client.FILE_BYTES // 4096
#: Sources of the program that takes orders.
PROGRAM = [*sorted((_HERE / 'src').glob('*.c')), programs.SOURCE / 'age.c',
           programs.SOURCE / 'ports.c']
# Emulated processors are slow at what guards real ones: each system call
# would forget all translations of addresses.  And one that has to wait for a
# real one loses the timer interrupts that the check waits for.
_CONFIG = '''\
DEFAULT linux
PROMPT 0
LABEL linux
  KERNEL kernel
  INITRD initrd
  APPEND root=LABEL=lab-debian ro console=ttyS0 quiet loglevel=3 \
systemd.show_status=false mitigations=off no_timer_check panic=-1
'''


def build() -> Path:
    """The raw image, built if it is not cached.

    :raises BuildError: a tool is missing or fails
    """
    name = cache.key(str(SCALE), str(SEED), str(DISK_MIB), _CONFIG,
                     _inputs())
    return cache.entry('debian', name, _build) / 'disk.raw'


def build_plain() -> Path:
    """A raw image of the packages alone, built if it is not cached.

    Its file system is made anew, as that of another machine of this release.

    :raises BuildError: a tool is missing or fails
    """
    name = cache.key(str(DISK_MIB), _CONFIG, [
        Path(__file__), Path(base.__file__), Path(bootdisk.__file__)])
    return cache.entry('debian-plain', name, _build_plain) / 'disk.raw'


def own_copy(target: Path) -> Path:
    """A copy of the image that a guest may write to, sparse."""
    return cache.copy(build(), target)


def _inputs():
    """Files on whose content the image depends."""
    lister = programs.LISTER
    found = [path for directory in (
        _HERE / 'src', _HERE / 'files', programs.SOURCE, lister / 'src',
        lister / 'include', lister / 'systemd')
        for path in directory.rglob('*') if path.is_file()]
    return found + [
        Path(__file__), Path(base.__file__), Path(bootdisk.__file__),
        _HERE / 'prepare', _HERE / 'postgresql.conf', lister / 'Makefile',
        lister / 'package']


def _build_plain(work):
    root = _unpack(work)
    _make_disk(work, root)
    shutil.rmtree(root)


def _unpack(work):
    """Return a directory with the packages."""
    base.check_root()
    root = work / 'root'
    root.mkdir()
    run(['tar', '-x', '-p', '--numeric-owner', '--xattrs',
         '--xattrs-include=*', '-C', root, '-f', base.archive()])
    return root


def _build(work):
    root = _unpack(work)
    _add_files(work, root)
    _add_programs(work, root)
    # in a process namespace of its own, so that the database server ends
    # with it, come what may
    base.run_logged(['unshare', '--pid', '--fork', '--kill-child', 'chroot',
                     root, '/prepare', str(SCALE)], work)
    _make_disk(work, root)
    shutil.rmtree(root)


def _add_files(work, root):
    run(['cp', '-r', '--no-preserve=ownership,timestamps',
         str(_HERE / 'files') + '/.', root])
    fill = work / 'fill'
    programs.compile_fill(fill)
    web = root / 'srv/web'
    web.mkdir(parents=True)
    run([fill, web, str(SEED), str(client.FILES), str(_PAGES)])
    fill.unlink()


def _add_programs(work, root):
    programs.compile_program(PROGRAM, root / 'usr/sbin/lab-guest', '-static')
    made = run([programs.LISTER / 'package', work]).strip()
    Path(made).rename(root / 'lister.deb')
    for name in ('prepare', 'postgresql.conf'):
        shutil.copy(_HERE / name, root / name)


def _make_disk(work, root):
    data = work / 'root.ext4'
    boot = root / 'boot'
    kernel = _only(boot, 'vmlinuz-*')
    initrd = _only(boot, 'initrd.img-*')
    run(['/sbin/mke2fs', '-q', '-t', 'ext4', '-F', '-L', 'lab-debian',
         '-b', '4096', '-m', '0', '-J', 'size=32',
         '-E', 'lazy_itable_init=0', '-d', root, data,
         '%dM' % (DISK_MIB - bootdisk.DATA_AT // bootdisk.MIB - 1)])
    bootdisk.assemble(work / 'disk.raw', kernel, initrd, _CONFIG, data)
    data.unlink()


def _only(directory, pattern):
    found = list(directory.glob(pattern))
    if len(found) != 1:
        raise BuildError('%d files %s in /boot, expected one' % (
            len(found), pattern))
    return found[0]


def main():
    try:
        print(build())
    except BuildError as error:
        print('Debian guest: %s' % error, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
