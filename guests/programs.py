# SPDX-License-Identifier: Apache-2.0
"""Compiles the programs that run in guests.

``src/`` holds what several of them are made of; each guest has its own
sources beside it.
"""

from pathlib import Path
import re
import shutil

from guests.errors import BuildError
from guests.errors import run

#: pattern.h, the content of test pages; ports, serial and virtio-serial;
#: fill, which writes files with that content; age, files of a machine in use.
SOURCE = Path(__file__).parent / 'src'
#: The page-cache lister.
LISTER = Path(__file__).parents[1] / 'lister'


def compile_program(sources: list[Path], out: Path, *flags: str) -> None:
    """Compile C files into a program.

    :raises BuildError: there is no compiler, or it fails
    """
    run(
        ['gcc', '-std=gnu11', '-O2', '-Wall', '-Wextra', '-pthread']
        + [f'-I{SOURCE}', *flags, '-s', '-o', str(out)]
        + [str(path) for path in sources]
    )


def compile_fill(out: Path) -> None:
    """Compile the program that fills a directory with test files."""
    compile_program([SOURCE / 'fill.c'], out)


def fill_sources() -> list[Path]:
    return [SOURCE / 'fill.c', SOURCE / 'pattern.h']


def age_sources() -> list[Path]:
    return [SOURCE / name for name in ('age.c', 'age.h', 'pattern.h')]


def compile_lister(directory: Path, tools: str = '') -> Path:
    """Compile the page-cache lister in a directory; its path.

    :param tools: prefix of the names of another architecture's compiler
    """
    run(['make', '-s', '-C', LISTER, f'OUT={directory}', f'CC={tools}gcc'])
    return directory / 'page-cache-lister'


def lister_sources() -> list[Path]:
    return [
        LISTER / 'Makefile',
        *(LISTER / 'src').glob('*.[ch]'),
        *(LISTER / 'include').glob('*.h'),
    ]


def installed(name: str) -> Path:
    """The path of a program of this machine.

    :raises BuildError: it is not installed
    """
    path = shutil.which(name) or shutil.which(name, path='/sbin:/usr/sbin')
    if path is None:
        raise BuildError(f'{name} is not installed')
    return Path(path)


def with_libraries(name: str) -> dict[str, bytes]:
    """Path in a guest -> content, of a program and the libraries it needs.

    :raises BuildError: it is not installed
    """
    path = installed(name)
    libraries = re.findall(r'(/\S+) \(0x', run(['ldd', path]))
    return {f'/bin/{name}': path.read_bytes(),
            **{library: Path(library).read_bytes() for library in libraries}}
