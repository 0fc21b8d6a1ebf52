# SPDX-License-Identifier: Apache-2.0
"""Builds what the test guest boots: Debian's kernel and our initramfs.

    python -m guests.synthetic.image        prints the two paths

The initramfs holds one static program (src/) and the modules that reach
disks and channels; on demand the page-cache lister as well.  Results are
cached by a hash of all inputs.
"""

from dataclasses import dataclass
from pathlib import Path
import sys
import tempfile

from guests import cache
from guests import kernel
from guests import programs
from guests.cpio import CpioWriter
from guests.errors import GuestError

_SOURCE = Path(__file__).parent / 'src'

_PROGRAM = (
    'main.c',
    'boot.c',
    'files.c',
    'anon.c',
    'small.c',
    'recycle.c',
    'direct.c',
    'channel.c',
    'lister.c',
    'worker.c',
)

# ext4 asks for crc32c by name, which no dependency list shows: it is first.
_MODULES = [
    'crc32c_generic',
    'crc32c_intel',
    'libcrc32c',
    'crc16',
    'mbcache',
    'jbd2',
    'ext4',
    'virtio_pci',
    'virtio_blk',
    'virtio_scsi',
    'virtio_console',
    'virtio_balloon',
    'virtio_mem',
    'scsi_mod',
    'sd_mod',
    'sr_mod',
    'libata',
    'ata_piix',
    'ahci',
    'nvme_core',
    'nvme',
    'acpiphp',
]


@dataclass(frozen=True)
class GuestImage:
    """Paths for `qemu -kernel … -initrd …`."""

    kernel: Path
    initrd: Path
    version: str


def _build(linux: kernel.Kernel, work: Path, lister: bool) -> None:
    program = work / 'init'
    programs.compile_program(
        [programs.SOURCE / 'ports.c', *(_SOURCE / name for name in _PROGRAM)],
        program, '-static')
    modules = kernel.in_load_order(_MODULES, linux.module_files())
    with open(work / 'initrd', 'wb') as out:
        archive = CpioWriter(out)
        for name in ('dev', 'proc', 'sys', 'data', 'modules'):
            archive.directory(name)
        archive.character_device('dev/console', 5, 1)
        archive.file('init', program.read_bytes(), 0o755)
        if lister:
            with tempfile.TemporaryDirectory() as directory:
                built = programs.compile_lister(Path(directory))
                archive.file(built.name, built.read_bytes(), 0o755)
        for name, data in modules.items():
            archive.file(f'modules/{name}.ko', data)
        listing = ''.join(f'{name}.ko\n' for name in modules)
        archive.file('modules/list', listing.encode())
        archive.close()
    (work / 'kernel').write_bytes(linux.image.read_bytes())


def guest_image(lister: bool = False) -> GuestImage:
    """The image, built if it is not cached.  BuildError says why not.

    :param lister: whether the page-cache lister is in it
    """
    linux = kernel.debian_kernel()
    inputs = [*_SOURCE.iterdir(), *programs.SOURCE.iterdir(),
              Path(__file__), Path(kernel.__file__)]
    if lister:
        inputs += programs.lister_sources()
    name = cache.key(str(linux.image), str(lister), inputs)
    place = cache.entry('guest', name,
                        lambda work: _build(linux, work, lister))
    return GuestImage(place / 'kernel', place / 'initrd', linux.version)


def main() -> int:
    try:
        image = guest_image()
    except GuestError as error:
        print(f'guest image: {error}', file=sys.stderr)
        return 1
    print(image.kernel, image.initrd, sep='\n')
    return 0


if __name__ == '__main__':
    sys.exit(main())
