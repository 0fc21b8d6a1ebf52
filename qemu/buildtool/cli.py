# SPDX-License-Identifier: Apache-2.0
"""The command ``qemu/build``."""

import argparse
import os
import shutil
import signal
import sys
import time

from buildtool import common
from buildtool import compiler
from buildtool import debian
from buildtool import prefix
from buildtool import recipe
from buildtool import roms
from buildtool import tree
from buildtool.common import BuildError

SRC = common.REPOSITORY / 'qemu' / 'src'
#: Our files in each flavour. The faults that tests inject are in the one
#: that nothing installs.
TOPS = {
    'stock': (),
    'patched': (SRC,),
    'faulty': (SRC, common.REPOSITORY / 'qemu' / 'faulty'),
}
PATCHES = common.REPOSITORY / 'qemu' / 'patches'
SPACE_GIB = 6


def parser():
    result = argparse.ArgumentParser(
        prog='qemu/build',
        description='Build QEMU as Debian ships it (stock), with this '
                    "project's mechanism (patched), or with that and the "
                    'faults that its tests inject (faulty), and print where '
                    'it was installed. What is built already is found again '
                    'by a hash of all inputs.')
    result.add_argument(
        'flavours', nargs='+', choices=tuple(TOPS), metavar='|'.join(TOPS))
    result.add_argument(
        '--small', action='store_true',
        help='build only what the demonstration needs, which takes half '
             'the time; complete ones are used instead if all of the '
             'given flavours are built already')
    result.add_argument(
        '--print-prefix', action='store_true',
        help='build nothing: print where it is installed, or fail')
    result.add_argument(
        '--print-tree', action='store_true',
        help='build nothing: print where its build tree is, or fail')
    result.add_argument(
        '--sanitize', metavar='NAMES', default='',
        help='comma-separated list of ' + ', '.join(recipe.SANITIZERS))
    result.add_argument(
        '--series', choices=sorted(debian.SERIES),
        default=debian.DEFAULT.name,
        help='releases of QEMU to build from: those of a series have the '
             'same hooks (default: %(default)s)')
    result.add_argument(
        '--source', metavar='VERSION',
        help='a version of the source package, such as 10.0.13; its series '
             'is used (default: the one in the cache, else the newest)')
    result.add_argument(
        '--source-dir', metavar='DIR',
        help='an unpacked QEMU source to use instead of the package; its '
             'series is used')
    result.add_argument(
        '--update', action='store_true',
        help='look for a newer source package than the one in the cache')
    result.add_argument(
        '--jobs', metavar='N', type=_positive,
        default=len(os.sched_getaffinity(0)),
        help='compile so many files at once (default: %(default)s)')
    return result


def _positive(text):
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not number:
        raise argparse.ArgumentTypeError(
            f'{text} is not a number above zero')
    return number


def patches(series):
    """Return the folder of a series' hooks."""
    return PATCHES if series.is_default else PATCHES / series.name


def wanted_series(args):
    if args.source:
        return debian.series_of(debian.upstream_version(args.source))
    return debian.SERIES[args.series]


def find_source(cache, args):
    """Return the source to use, or None where it has to be fetched."""
    if args.source_dir:
        return debian.from_folder(args.source_dir)
    series = wanted_series(args)
    return None if args.update else debian.cached(
        cache, args.source, series)


class Build:
    """One flavour from one source."""

    def __init__(self, cache, source, flavour, sanitize,
                 profile=recipe.FULL):
        self.cache, self.source, self.flavour = cache, source, flavour
        self.sanitize, self.profile = sanitize, profile
        series = debian.series_of(source.version)
        self.patches = patches(series)
        self.tops = TOPS[flavour]
        self.ours = (tree.digest(self.tops, self.patches) if self.tops
                     else None)
        #: As it is called, and as its prefix is.
        other = '' if series.is_default else series.name
        build = '-'.join(filter(None, (other, profile.name)))
        self.kind = '-'.join(filter(None, (flavour, build)))
        self.prefix = prefix.path(cache, recipe.prefix_key(
            source, sanitize, self.ours, profile), self.kind)
        # The faulty one differs from the patched one in a few files.
        kind = 'patched' if flavour == 'faulty' else flavour
        self.tree_kind = '-'.join(
            [build if profile.shared_tree
             else '-'.join(filter(None, (kind, build))),
             *sorted(sanitize)])
        key = recipe.tree_key(source, sanitize, profile)
        self.tree = cache.root / 'tree' / f'{self.tree_kind}_{key}'

    @property
    def installed(self):
        return prefix.exists(self.prefix)

    def prepare(self):
        """Make the tree what it should be and configure it."""
        common.need_command('patch', 'patch')
        if not (self.tree / 'build' / '.configured').exists():
            # A tree of other inputs will not be used again.
            for old in self.tree.parent.glob(f'{self.tree_kind}_*'):
                if old != self.tree:
                    shutil.rmtree(old)
            self.tree.mkdir(parents=True, exist_ok=True)
            common.need_space(self.tree, SPACE_GIB)
        tree.prepare(self.source, self.tree,
                     recipe.device_configuration(self.profile))
        if self.tops:
            changed = tree.synchronise(
                self.source, self.tree, self.tops, self.patches)
        else:
            changed = tree.restore(self.source, self.tree)
        if changed:
            common.say(f'{len(changed)} files of the tree are new')
        compiler.configure(
            self.cache, self.tree, self.sanitize, self.profile)

    def make(self, jobs):
        """Build and install."""
        common.say(f'building {self.kind} QEMU {self.source.version}')
        started = time.monotonic()
        self.prepare()
        compiler.ninja(self.cache, self.tree, self.profile.targets, jobs,
                       profile=self.profile)
        roms.build_option_roms(self.cache, self.tree)
        roms.link(self.tree)
        prefix.install(self.cache, self.tree, self.prefix, self.profile, {
            'flavour': self.flavour, 'version': self.source.version,
            'source': self.source.identity, 'ours': self.ours,
            'options': recipe.options(self.sanitize, self.profile)})
        prefix.prune(self.cache, self.kind)
        common.say(f'built {self.kind} in '
                   f'{time.monotonic() - started:.0f} s')


def builds(cache, source, args, sanitize):
    """Return a Build for each flavour that is wanted.

    All are of one profile, so that they can be compared.
    """
    complete = [Build(cache, source, flavour, sanitize)
                for flavour in args.flavours]
    if not args.small or all(build.installed for build in complete):
        return complete
    return [Build(cache, source, flavour, sanitize, recipe.SMALL)
            for flavour in args.flavours]


def show(cache, args, sanitize):
    """Print paths without building."""
    source = find_source(cache, args)
    found = (builds(cache, source, args, sanitize) if source
             else [None] * len(args.flavours))
    for flavour, build in zip(args.flavours, found, strict=True):
        if args.print_tree:
            place, there = build and build.tree, build and (
                build.tree / 'build' / '.configured').exists()
        else:
            place, there = build and build.prefix, build and (
                build.installed)
        if not there:
            raise BuildError(
                f'{flavour} QEMU is not built from these sources yet: '
                f'run qemu/build {flavour}')
        print(place)


def run(args, cache=None):
    cache = cache or common.Cache()
    sanitize = [name for name in args.sanitize.split(',') if name]
    recipe.options(sanitize)
    if args.print_prefix or args.print_tree:
        return show(cache, args, sanitize)
    with cache.locked():
        source = find_source(cache, args)
        if source is None:
            common.need_space(cache.root, SPACE_GIB)
            source = debian.fetch(cache, args.source, wanted_series(args))
        for build in builds(cache, source, args, sanitize):
            if build.installed:
                prefix.use(build.prefix)
            else:
                build.make(args.jobs)
            print(build.prefix, flush=True)


def _stop(signum, frame):
    sys.exit(128 + signum)


def main(argv=None):
    args = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _stop)
    try:
        run(args)
    except BuildError as error:
        if error.log:
            for line in common.last_lines(error.log):
                print(f'  | {line}', file=sys.stderr)
            print(f'qemu/build: the whole log: {error.log}',
                  file=sys.stderr)
        print(f'qemu/build: error: {error}', file=sys.stderr)
        return 1
    except OSError as error:
        where = f' ({error.filename})' if error.filename else ''
        print(f'qemu/build: error: {error.strerror or error}{where}',
              file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('qemu/build: interrupted', file=sys.stderr)
        return 130
    return 0
