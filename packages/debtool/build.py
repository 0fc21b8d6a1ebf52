# SPDX-License-Identifier: Apache-2.0
"""Builds the packages of a source tree in a system of a suite."""

import re
import shutil

from debtool import chroot
from debtool import qemu
from debtool import source

RESULTS = source.TOP / 'build' / 'deb'
#: What each build needs beside debian/control's Build-Depends.
TOOLS = ('build-essential', 'fakeroot')
#: Build dependencies of our packages, and what checks them; these are part of
#: the kept system.
OURS = ('debhelper', 'dh-apparmor', 'dh-python', 'lintian',
        'pybuild-plugin-pyproject', 'python3-all', 'python3-pbr',
        'python3-setuptools')
#: Suites of which the packages are: ours need OpenStack 2025.2 or later,
#: QEMU 10.0 is that of trixie.
SUITES = {'nova-dedup-migrate': 'forky', 'qemu-source': 'trixie',
          'qemu': 'trixie'}
#: Errors and warnings are faults.
LINTIAN = 'lintian --no-cfg --fail-on error,warning --tag-display-limit 0'


def build(name, suite, directory):
    """Build packages; ours have to pass lintian.

    Debian's faults in its own QEMU are not ours to mend.

    :param name: nova-dedup-migrate, qemu, or qemu-source: the source package
                 alone
    :param directory: an empty one, for the tree
    :returns: paths of what was built, in build/deb/<suite>
    :raises chroot.PackagingFailed:
    """
    results = RESULTS / suite
    results.mkdir(parents=True, exist_ok=True)
    log = chroot.Log(results / (name + '.log'))
    control, profiles = None, ()
    if name == 'nova-dedup-migrate':
        tree = source.ours(directory, suite)
        include = (*TOOLS, *OURS)
    else:
        tree = source.qemu(directory, suite, log)
        include = TOOLS
        if name == 'qemu' and not qemu.cached(tree).exists():
            include = qemu.TOOLS
            control, profiles = tree / 'debian/control', qemu.PROFILES
    with chroot.system(suite, include, log, control, profiles) as system:
        shutil.copytree(directory, system.path('/build'), symlinks=True)
        inside = '/build/' + tree.name
        system.run('building the source package of %s' % name,
                   'cd %s && dpkg-source --build .' % inside)
        if name == 'qemu':
            qemu.build(system, tree, inside)
        elif name == 'nova-dedup-migrate':
            ours(system, inside)
            system.run('lintian of %s' % name,
                       'cd /build && %s *.dsc *.deb' % LINTIAN)
        return _collect(system.path('/build'), results, name)


def ours(system, inside):
    """Build our packages of a tree in a system; they are left beside it."""
    system.run('building our packages', 'cd %s && DEB_BUILD_OPTIONS="nocheck '
               'parallel=$(nproc)" dpkg-buildpackage -us -uc' % inside)


def _collect(directory, results, name):
    """Move what was built to its place; older files of it go."""
    kept = re.compile(r'.*\.(deb|dsc|tar\.xz|buildinfo|changes)$')
    found = [path for path in sorted(directory.iterdir())
             if path.is_file() and kept.match(path.name)
             and '-dbgsym' not in path.name]
    names = {path.name.partition('_')[0] for path in found} | {name}
    for old in results.iterdir():
        if old.name.partition('_')[0] in names and kept.match(old.name):
            old.unlink()
    for path in found:
        shutil.copy(path, results)
    return [results / path.name for path in found]
