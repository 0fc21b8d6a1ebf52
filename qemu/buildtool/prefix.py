# SPDX-License-Identifier: Apache-2.0
"""The installed QEMU: ``<cache>/qemu/<hash>/<flavour>/{bin,share/qemu}``.

It is put together aside, tried, and renamed into place: a prefix that
exists is complete.
"""

import json
import os
from pathlib import Path
import shutil
import subprocess
import time

from buildtool import common
from buildtool import roms
from buildtool.common import BuildError

KEPT = 3


def path(cache, key, kind):
    return cache.root / key / kind


def exists(place):
    return (place / 'build.json').is_file()


def install(cache, tree, place, profile, facts):
    """Install what a tree has built.

    :param place: the prefix
    :param profile: what was built
    :param facts: what to note in its build.json
    """
    with common.scratch(cache.root, '.install-') as new:
        binaries = new / 'prefix' / 'bin'
        share = new / 'prefix' / 'share' / 'qemu'
        binaries.mkdir(parents=True)
        share.mkdir(parents=True)
        for target in profile.targets:
            shutil.copy(tree / 'build' / target,
                        binaries / Path(target).name)
        roms.collect(tree, share)
        _try(binaries / 'qemu-system-x86_64', profile.trial)
        (new / 'prefix' / 'build.json').write_text(
            json.dumps(facts, indent=2) + '\n')
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(place, ignore_errors=True)
        (new / 'prefix').rename(place)


def _try(binary, options):
    """Start a machine that needs its firmware, and end it."""
    script = ('{"execute": "qmp_capabilities"}\n{"execute": "quit"}\n')
    command = [binary, '-machine', 'pc,accel=tcg', '-S', '-display', 'none',
               '-nodefaults', *options, '-qmp', 'stdio']
    try:
        done = subprocess.run(
            command, input=script, capture_output=True, text=True,
            timeout=120, env={**os.environ, 'ASAN_OPTIONS':
                              'detect_leaks=0'})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f'the new QEMU does not start: {error}') from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ['nothing'])[-1]
        raise BuildError(f'the new QEMU does not start; it says: {said}')


def use(place):
    """Mark a prefix as used now; pruning goes by that."""
    try:
        os.utime(place)
    except PermissionError:
        # A cache somebody else owns can be used, it just ages.
        pass


def prune(cache, kind):
    """Remove all but the prefixes of a kind that were used last.

    Those used within a day stay: a test or a benchmark may be running them.
    """
    yesterday = time.time() - 86400
    found = sorted(cache.root.glob(f'*/{kind}/build.json'),
                   key=lambda note: note.parent.stat().st_mtime)
    for note in found[:-KEPT]:
        if note.parent.stat().st_mtime > yesterday:
            continue
        shutil.rmtree(note.parent)
        if not any(note.parent.parent.iterdir()):
            note.parent.parent.rmdir()
