# SPDX-License-Identifier: Apache-2.0
"""Where the two QEMUs are."""

import os
from pathlib import Path
import shutil
import subprocess

from benchmarks.guest.errors import GuestError

_BUILD = Path(__file__).parent.parent / 'qemu/build'


class QemuNotFound(GuestError):
    """There is no QEMU of the kind that is asked for."""


def _built(kind: str) -> Path | None:
    """What qemu/build has installed, None if it has not."""
    try:
        done = subprocess.run(
            [_BUILD, kind, '--print-prefix'],
            capture_output=True,
            text=True,
            timeout=60,
        )
    except OSError:
        return None
    if done.returncode:
        return None
    return Path(done.stdout.strip()) / 'bin/qemu-system-x86_64'


def find(kind: str, given: str | None = None) -> Path:
    """The QEMU called stock or patched.

    In this order: `given`, the environment's DEDUP_QEMU_<KIND>, what
    qemu/build has built.

    :raises QemuNotFound: there is none
    """
    named = given or os.environ.get(f'DEDUP_QEMU_{kind.upper()}')
    if named:
        path = shutil.which(named)
        if path is None:
            raise QemuNotFound(f'{named} is not a program')
        return Path(path).resolve()
    built = _built(kind)
    if built is None or not os.access(built, os.X_OK):
        target = 'qemu-stock' if kind == 'stock' else 'qemu'
        raise QemuNotFound(f'there is no {kind} QEMU: run make {target}')
    return built


def tool(binary: Path, name: str) -> Path:
    """A program beside a QEMU, such as qemu-img."""
    beside = binary.parent / name
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which(name)
    if found is None:
        raise QemuNotFound(f'there is no {name} beside {binary}')
    return Path(found)
