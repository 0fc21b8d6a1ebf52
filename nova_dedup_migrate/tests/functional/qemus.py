# SPDX-License-Identifier: Apache-2.0
"""Where functional tests find the QEMUs they run."""

import functools
import os
import pathlib
import shutil
import subprocess

_BUILD = pathlib.Path(__file__).parents[3] / 'qemu' / 'build'
_VARIABLES = {'stock': 'DEDUP_QEMU_STOCK', 'patched': 'DEDUP_QEMU_PATCHED'}


@functools.cache
def find(kind):
    """Return (path, None), or (None, reason).

    :param kind: stock or patched
    """
    variable = _VARIABLES[kind]
    path = os.environ.get(variable)
    if path:
        if shutil.which(path) is None:
            return None, '%s=%s cannot be executed' % (variable, path)
        return path, None
    if os.access(_BUILD, os.X_OK):
        prefix = subprocess.run(
            [_BUILD, '--print-prefix', kind], capture_output=True,
            text=True, timeout=60, check=False).stdout.strip()
        path = os.path.join(prefix, 'bin', 'qemu-system-x86_64')
        if prefix and os.access(path, os.X_OK):
            return path, None
    return None, ('no %s QEMU: run "make qemu" or set %s'
                  % (kind, variable))


def require(test, kind):
    """Return the path of a QEMU, or skip the test and say why."""
    path, reason = find(kind)
    if path is None:
        test.skipTest(reason)
    return path


def kvm_works():
    """Whether /dev/kvm can be used; it may still run no 64 bit guest."""
    return os.access('/dev/kvm', os.R_OK | os.W_OK)
