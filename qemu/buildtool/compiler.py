# SPDX-License-Identifier: Apache-2.0
"""configure and ninja, in a build tree that is kept and built upon."""

import re
import shutil
import sys
import time

from buildtool import common
from buildtool import recipe


def environment(cache, place, profile=recipe.FULL):
    """Return the environment of a build.

    ccache lets the second of the two QEMUs, and every fresh tree, reuse
    what the first compiled: paths are made relative to the tree. A tree
    that the two share needs none, and saves the time it takes.
    """
    if profile.shared_tree or shutil.which('ccache') is None:
        return {}
    return {
        'CCACHE_DIR': str(cache.root / 'ccache'),
        'CCACHE_BASEDIR': str(place),
        'CCACHE_NOHASHDIR': '1',
        # A header's time of change is that of its unpacking.
        'CCACHE_SLOPPINESS': 'include_file_mtime,include_file_ctime,'
                             'time_macros',
        'CCACHE_COMPILERCHECK': 'content',
        'CCACHE_DEPEND': '1',
        'CCACHE_COMPRESSLEVEL': '1',
        'CCACHE_MAXSIZE': '3G',
    }


def configure(cache, place, sanitize=(), profile=recipe.FULL):
    """Configure the tree's build folder, unless that is done."""
    build, done = place / 'build', place / 'build' / '.configured'
    if done.exists():
        return
    common.need_command('ninja', 'ninja-build')
    common.need_command('pkg-config', 'pkgconf')
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir()
    name, _ = recipe.compiler()
    used = environment(cache, place, profile)
    if used:
        name = f'ccache {name}'
    python = recipe.python(cache)
    common.say('configuring')
    cache.run(
        "QEMU's configure (are all packages of bindep.txt installed?)",
        [place / 'source' / 'configure', f'--python={python}',
         f'--cc={name}', *recipe.options(sanitize, profile)],
        build, place / 'log' / 'configure.log', used)
    done.touch()


class Progress:
    """Turns ninja's [done/all] into a line now and then."""

    def __init__(self, stream=None, clock=time.monotonic):
        self.stream = stream or sys.stderr
        self.clock = clock
        self.started = self.said = clock()
        self.live = self.stream.isatty()

    def line(self, text):
        match = re.match(r'\[(\d+)/(\d+)\]', text)
        if not match:
            return
        done, total = int(match[1]), int(match[2])
        now = self.clock()
        if done != total and now - self.said < (0.2 if self.live else 15):
            return
        self.said = now
        shown = (f'qemu/build: compiling {done}/{total} '
                 f'({now - self.started:.0f} s)')
        end = '\n' if done == total or not self.live else '\r'
        print(shown, file=self.stream, end=end, flush=True)


def ninja(cache, place, targets, jobs, log='ninja.log',
          profile=recipe.FULL):
    """Build targets in a configured tree."""
    cache.run(
        'compiling QEMU',
        ['ninja', '-C', place / 'build', f'-j{jobs}', *targets],
        place, place / 'log' / log, environment(cache, place, profile),
        Progress().line)
