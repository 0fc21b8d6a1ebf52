# SPDX-License-Identifier: Apache-2.0
"""A Linux kernel and its modules, from Debian's package, not installed."""

from dataclasses import dataclass
import lzma
import os
from pathlib import Path
import re
import subprocess

from guests import cache
from guests.errors import BuildError
from guests.errors import run

META_PACKAGE = 'linux-image-cloud-amd64'
#: Names the directory of another kernel package, unpacked.
VARIABLE = 'DEDUP_GUEST_KERNEL'

_DEPENDS = re.compile(rb'\0depends=([^\0]*)\0')
_SUFFIX = re.compile(r'\.ko(\.xz|\.zst|\.gz)?$')


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel package.

    image: the bzImage; modules: directory of *.ko, maybe compressed; place:
    the directory of the package.
    """

    version: str
    image: Path
    modules: Path
    place: Path

    def module_files(self) -> dict[str, Path]:
        """Module name (with underscores) -> file."""
        found = {}
        for path in self.modules.rglob('*.ko*'):
            name = _SUFFIX.sub('', path.name).replace('-', '_')
            found[name] = path
        return found


def _candidate() -> tuple[str, str]:
    """(package, version) of the kernel Debian's meta package names."""
    text = run(['apt-cache', 'depends', META_PACKAGE])
    names = re.findall(r'Depends: (linux-image-\S+)', text)
    if not names:
        raise BuildError(
            f'apt knows no package {META_PACKAGE}; run apt-get update'
        )
    policy = run(['apt-cache', 'policy', names[0]])
    version = re.search(r'Candidate: (\S+)', policy)
    if not version or version[1] == '(none)':
        raise BuildError(f'apt has no candidate for {names[0]}')
    return names[0], version[1]


def _unpack(package: str, work: Path) -> None:
    # apt drops to the user _apt where it can; the directory is for it too.
    work.chmod(0o755)
    run(['apt-get', '-q', 'download', package], cwd=work)
    archive = next(work.glob('*.deb'))
    run(['dpkg-deb', '-x', archive, work])
    archive.unlink()


def debian_kernel() -> Kernel:
    """The kernel downloaded last; the one Debian offers now if none.

    VARIABLE overrides that.
    """
    given = os.environ.get(VARIABLE)
    if given:
        return _kernel_in(Path(given))
    newest = sorted(
        cache.root().glob('kernel/linux-image-*'), key=os.path.getmtime
    )
    if newest:
        return _kernel_in(newest[-1])
    package, version = _candidate()
    name = f'{package}_{version.replace(":", "%3a")}'
    return _kernel_in(
        cache.entry('kernel', name, lambda work: _unpack(package, work))
    )


def _kernel_in(place: Path) -> Kernel:
    modules = [
        directory
        for base in ('lib/modules', 'usr/lib/modules')
        for directory in sorted((place / base).glob('*'))
    ]
    if not modules:
        raise BuildError(f'no modules in {place}')
    version = modules[-1].name
    # Newer packages keep the image beside the modules.
    for image in (
        place / 'boot' / f'vmlinuz-{version}',
        modules[-1] / 'vmlinuz',
    ):
        if image.is_file():
            return Kernel(version, image, modules[-1], place)
    raise BuildError(f'no kernel {version} in {place}')


def module_data(path: Path) -> bytes:
    """A module as the kernel takes it: decompressed."""
    data = path.read_bytes()
    if path.suffix == '.xz':
        return lzma.decompress(data)
    if path.suffix == '.zst':
        done = subprocess.run(
            ['zstd', '-dcq'], input=data, capture_output=True, check=False
        )
        if done.returncode:
            raise BuildError(f'cannot decompress {path.name}')
        return done.stdout
    return data


def depends_of(data: bytes) -> list[str]:
    """Names of the modules this one needs, from its .modinfo section."""
    match = _DEPENDS.search(data)
    text = match[1].decode() if match else ''
    return [name.replace('-', '_') for name in text.split(',') if name]


def in_load_order(
    wanted: list[str], files: dict[str, Path]
) -> dict[str, bytes]:
    """Decompressed modules, dependencies first.

    A wanted module that the kernel has built in (no file) is left out.
    """
    ordered: dict[str, bytes] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in ordered or name not in files or name in above:
            return
        data = module_data(files[name])
        for need in depends_of(data):
            add(need, (*above, name))
        ordered[name] = data

    for name in wanted:
        add(name, ())
    return ordered
