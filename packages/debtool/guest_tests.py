# SPDX-License-Identifier: Apache-2.0
"""Tests of migrations, with QEMU as it is installed in a system.

The tests run here, and start QEMU's programs by scripts that change into the
system.  What a test passes to QEMU has the same path in both.
"""

import os
from pathlib import Path
import shlex
import subprocess
import sys
import tempfile

from buildtool import common
from debtool import host
from debtool import source

PROGRAMS = ('qemu-img', 'qemu-io', 'qemu-storage-daemon',
            'qemu-system-x86_64')
_PACKAGE = 'nova_dedup_migrate.tests.functional.migration.'
#: None of them injects a fault: packages have no faults.
TESTS = tuple(_PACKAGE + name for name in (
    'test_lifecycle.LifecycleTest.test_there_and_back',
    'test_formats.FormatsTest.test_chain_of_three',
    'test_compress.BesideRecordsTest.test_both',
    'test_multifd.RecordsFirstTest.test_plain'))
#: Seconds for all of them.
LIMIT = 900


def script(root, shared):
    """Return a shell script that runs the program of its name in a system.

    :param root: of the system
    :param shared: directories that have the same path there
    """
    mounts = ''.join('mkdir -p %(there)s; mount --rbind %(here)s %(there)s\n'
                     % {'here': shlex.quote(str(path)),
                        'there': shlex.quote('%s%s' % (root, path))}
                     for path in shared)
    # chroot changes to /, and images have names without a directory.
    inside = shlex.quote('cd "$1"; shift; exec "$@"')
    return ('#!/bin/sh\nexec unshare --mount sh -ec %s "$(basename "$0")" '
            '"$@"\n' % shlex.quote(
                mounts + 'exec chroot %s sh -ec %s sh "$PWD" "$0" "$@"' % (
                    shlex.quote(str(root)), inside)))


def run(system, log):
    """Run the tests.

    :param system: a chroot.System
    :returns: how many have passed
    :raises CheckFailed: one fails
    """
    shared = (Path('/dev'), Path('/proc'), Path(tempfile.gettempdir()),
              source.TOP, common.cache_root())
    made = [system.path(str(path)) for path in shared
            if not system.path(str(path)).exists()]
    directory = system.path('/root/programs')
    directory.mkdir()
    for name in PROGRAMS:
        place = directory / name
        place.write_text(script(system.directory, shared))
        place.chmod(0o755)
    binary = str(directory / PROGRAMS[-1])
    try:
        done = subprocess.run(
            [sys.executable, '-m', 'unittest', *TESTS], cwd=source.TOP,
            env={**os.environ, 'DEDUP_QEMU_FAULTY': binary,
                 'DEDUP_QEMU_PATCHED': binary},
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=LIMIT)
    finally:
        for name in PROGRAMS:
            (directory / name).unlink()
        directory.rmdir()
        for path in made:
            if path.exists():
                os.removedirs(path)
    with log.path.open('a') as output:
        output.write(done.stderr)
    host.check(not done.returncode and 'skipped' not in done.stderr,
               'tests of migrations fail: see %s' % log.path)
    return '%d tests' % len(TESTS)
