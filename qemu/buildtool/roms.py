# SPDX-License-Identifier: Apache-2.0
"""Firmware: Debian's packages have the BIOS, the tree the option ROMs.

Debian's source package carries no binaries, and QEMU's own rule for
option ROMs asks for a complete 32-bit compiler although these link with
nothing. So they are made here.
"""

from pathlib import Path
import shutil
import sys

from buildtool import common
from buildtool.common import BuildError

PACKAGES = {
    'seabios': (Path('/usr/share/seabios'), '*.bin'),
    'ipxe-qemu': (Path('/usr/lib/ipxe/qemu'), '*.rom'),
}


def build_option_roms(cache, place):
    """Make the option ROMs; return their folder."""
    folder = place / 'optionrom'
    folder.mkdir(exist_ok=True)
    source = place / 'source'
    (folder / 'config.mak').write_text(
        f'TOPSRC_DIR={source}\nCC=cc\nOBJCOPY=objcopy\n'
        f'PYTHON={sys.executable}\nTARGET_DIR=\nEXTRA_CFLAGS=-m32\n')
    common.need_command('make', 'make')
    cache.run('making the option ROMs',
              ['make', '-f', source / 'pc-bios/optionrom/Makefile', 'all'],
              folder, place / 'log' / 'optionrom.log')
    return folder


def collect(place, share):
    """Put all firmware and key maps into the folder ``share``."""
    for package, (folder, pattern) in PACKAGES.items():
        files = sorted(folder.glob(pattern))
        if not files:
            raise BuildError(
                f'the Debian package {package} is missing: install it, or '
                'run tools/bootstrap')
        for path in files:
            shutil.copy(path, share / path.name)
    for path in sorted((place / 'optionrom').glob('*.bin')):
        shutil.copy(path, share / path.name)
    shutil.copytree(_bundle(place) / 'keymaps', share / 'keymaps',
                    dirs_exist_ok=True)


def link(place):
    """Make the programs in the build folder find their firmware too."""
    bundle = _bundle(place)
    paths = [path for folder, pattern in PACKAGES.values()
             for path in folder.glob(pattern)]
    for path in [*paths, *(place / 'optionrom').glob('*.bin')]:
        link_name = bundle / path.name
        if not link_name.is_symlink():
            link_name.symlink_to(path)


def _bundle(place):
    return place / 'build/qemu-bundle/usr/local/share/qemu'
