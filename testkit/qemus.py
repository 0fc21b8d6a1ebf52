# SPDX-License-Identifier: Apache-2.0
"""Where tests and benchmarks find the QEMUs they run."""

import functools
import json
import os
from pathlib import Path
import shutil
import subprocess

from nova_dedup_migrate.hypervisor import errors

_BUILD = Path(__file__).parents[1] / 'qemu' / 'build'
#: What makes them.
_TARGETS = {'stock': 'qemu-stock', 'patched': 'qemu',
            'faulty': 'qemu-faulty'}
#: Compared with each other, so built alike.
_PAIR = ('stock', 'patched')


class QemuNotFound(errors.HypervisorError):
    template = '{reason}'


@functools.cache
def _built(kind: str, small: bool, *options: str) -> Path | None:
    """What qemu/build has installed, None if it has not."""
    # both small ones at once: it is a complete pair or a small pair
    kinds = list(_PAIR) if small else [kind]
    try:
        done = subprocess.run(
            [_BUILD, *kinds, '--print-prefix', *['--small'] * small,
             *options],
            capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    prefixes = done.stdout.splitlines()
    if done.returncode or len(prefixes) != len(kinds):
        return None
    binary = (Path(prefixes[kinds.index(kind)]) / 'bin'
              / 'qemu-system-x86_64')
    return binary if os.access(binary, os.X_OK) else None


def find(kind: str, given: str | None = None, small: bool = False) -> Path:
    """Return the QEMU called stock, patched or faulty.

    The faulty one is the patched one with the faults that tests inject.

    In this order: `given`, the environment's DEDUP_QEMU_<KIND>, what
    qemu/build has built.

    :param small: what benchmarks.demo starts is enough
    :raises QemuNotFound: there is none
    """
    variable = f'DEDUP_QEMU_{kind.upper()}'
    named = given or os.environ.get(variable)
    if named:
        path = shutil.which(named)
        if path is None:
            raise QemuNotFound(reason=f'{named} cannot be executed')
        return Path(path).resolve()
    built = _built(kind, small)
    if built is None and small:
        raise QemuNotFound(reason=(
            f'there is no {kind} QEMU: run "make demo-ready" or set '
            f'{variable}'))
    if built is None:
        raise QemuNotFound(reason=(
            f'there is no {kind} QEMU: run "make {_TARGETS[kind]}" or set '
            f'{variable}'))
    return built


def of_series(kind: str, series: str) -> Path:
    """Return the QEMU of a series that qemu/build has built.

    :raises QemuNotFound: it has not
    """
    built = _built(kind, False, '--series', series)
    if built is None:
        raise QemuNotFound(reason=(
            f'there is no {kind} QEMU {series}: run '
            f'"qemu/build {kind} --series {series}"'))
    return built


def tool(binary: Path, name: str) -> Path:
    """Return a program beside a QEMU, such as qemu-img.

    :raises QemuNotFound: there is none
    """
    beside = binary.parent / name
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which(name)
    if found is None:
        raise QemuNotFound(reason=f'there is no {name} beside {binary}')
    return Path(found)


def compiled(binary: Path) -> dict:
    """Return what qemu/build noted of a QEMU, {} if it built none there.

    :returns: version, source, options of configure and more
    """
    try:
        facts = json.loads((binary.parents[1] / 'build.json').read_text())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def require(test, kind: str) -> str:
    """Return the path of a QEMU, or skip the test and say why."""
    try:
        return os.fspath(find(kind))
    except QemuNotFound as error:
        return test.skipTest(str(error))


def destination() -> str | None:
    """The QEMU of destinations, None if it is the source's.

    The environment's DEDUP_QEMU_DESTINATION: for tests of a pair of QEMUs.
    """
    return os.environ.get('DEDUP_QEMU_DESTINATION') or None


def machine() -> str:
    """The machine of guests that migrate between the QEMUs of a pair.

    The environment's DEDUP_QEMU_MACHINE; the default, pc, is another machine
    in each release.
    """
    return os.environ.get('DEDUP_QEMU_MACHINE') or 'pc'


def kvm_works() -> bool:
    """Whether /dev/kvm can be used; it may still run no 64 bit guest."""
    return os.access('/dev/kvm', os.R_OK | os.W_OK)
