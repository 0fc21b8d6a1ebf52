# SPDX-License-Identifier: Apache-2.0
"""Where tests and benchmarks find the QEMUs they run."""

import functools
import os
from pathlib import Path
import shutil
import subprocess

from nova_dedup_migrate.hypervisor import errors

_BUILD = Path(__file__).parents[1] / 'qemu' / 'build'
#: What makes them.
_TARGETS = {'stock': 'qemu-stock', 'patched': 'qemu'}


class QemuNotFound(errors.HypervisorError):
    template = '{reason}'


@functools.cache
def _built(kind: str) -> Path | None:
    """What qemu/build has installed, None if it has not."""
    try:
        done = subprocess.run(
            [_BUILD, kind, '--print-prefix'], capture_output=True,
            text=True, timeout=60, check=False)
    except OSError:
        return None
    prefix = done.stdout.strip()
    if done.returncode or not prefix:
        return None
    binary = Path(prefix) / 'bin' / 'qemu-system-x86_64'
    return binary if os.access(binary, os.X_OK) else None


def find(kind: str, given: str | None = None) -> Path:
    """Return the QEMU called stock or patched.

    In this order: `given`, the environment's DEDUP_QEMU_<KIND>, what
    qemu/build has built.

    :raises QemuNotFound: there is none
    """
    variable = f'DEDUP_QEMU_{kind.upper()}'
    named = given or os.environ.get(variable)
    if named:
        path = shutil.which(named)
        if path is None:
            raise QemuNotFound(reason=f'{named} cannot be executed')
        return Path(path).resolve()
    built = _built(kind)
    if built is None:
        raise QemuNotFound(reason=(
            f'there is no {kind} QEMU: run "make {_TARGETS[kind]}" or set '
            f'{variable}'))
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


def require(test, kind: str) -> str:
    """Return the path of a QEMU, or skip the test and say why."""
    try:
        return os.fspath(find(kind))
    except QemuNotFound as error:
        return test.skipTest(str(error))


def kvm_works() -> bool:
    """Whether /dev/kvm can be used; it may still run no 64 bit guest."""
    return os.access('/dev/kvm', os.R_OK | os.W_OK)
