# SPDX-License-Identifier: Apache-2.0
"""Builds those of QEMU's packages that a compute host needs.

Debian's own rules build them, as they are in its source package.  What is
different is said on the command line and in the environment:

* the packages that stay Debian's are left out (``DH_OPTIONS=-N...``);
* ``system-packages`` and ``--target-list`` are those of qemu-system-x86;
* the build profile ``pkg.qemu.use-upstream-vdso``, which is of no effect
  without qemu-user, and ``nocheck``;
* there are no packages with debug symbols, and ccache compiles.

A complete build of the same source package needs none of this.
"""

import hashlib
import re
import shutil

from buildtool import common

#: Packages that have to be of one build: QEMU loads modules of its own only.
PACKAGES = ('qemu-block-extra', 'qemu-system-common', 'qemu-system-gui',
            'qemu-system-modules-opengl', 'qemu-system-modules-spice',
            'qemu-system-x86', 'qemu-utils')
#: Debian's rules build a system emulator if this empty package is built. It
#: depends on those of all machines, and is thrown away.
_SWITCH = 'qemu-system'
TARGETS = ('i386-softmmu', 'x86_64-softmmu')
PROFILES = ('nocheck', 'pkg.qemu.use-upstream-vdso')
#: What a build needs beside Build-Depends.
TOOLS = ('build-essential', 'ccache', 'fakeroot')


def left_out(control):
    """Return the names of packages that stay Debian's.

    :param control: text of debian/control
    :raises common.BuildError: it lacks a package of ours
    """
    names = re.findall(r'^Package: (\S+)', control, re.MULTILINE)
    missing = {*PACKAGES, _SWITCH}.difference(names)
    if missing:
        raise common.BuildError(
            "Debian's QEMU has changed: it has no package %s"
            % ', '.join(sorted(missing)))
    return [name for name in names if name not in (*PACKAGES, _SWITCH)]


def command(tree):
    """Return the shell command that builds the packages in the tree.

    :raises common.BuildError: Debian's rules are others than expected
    """
    for name, pattern in (
            ('control.mk', r'^system-packages := .*\bx86\b'),
            ('rules', r'\$\{QEMU_CONFIGURE_OPTIONS\}'),
            ('rules', r'^enable-system = .*filter qemu-system,')):
        if not re.search(pattern, (tree / 'debian' / name).read_text(),
                         re.MULTILINE):
            raise common.BuildError("Debian's QEMU has changed: its %s has "
                                    'no %s' % (name, pattern))
    names = left_out((tree / 'debian/control').read_text())
    return ' '.join((
        # There is no cc in that directory, which configure would take.
        'PATH=/usr/lib/ccache:$PATH CC=gcc CCACHE_DIR=/mnt/ccache',
        'CCACHE_BASEDIR=$PWD CCACHE_MAXSIZE=5G',
        'DH_OPTIONS="%s"' % ' '.join('-N' + name for name in names),
        'DEB_BUILD_OPTIONS="nocheck noautodbgsym terse parallel=$(nproc)"',
        'dpkg-buildpackage --build=any --no-sign',
        '--build-profiles=' + ','.join(PROFILES),
        "--rules-file='debian/rules system-packages=x86 "
        "QEMU_CONFIGURE_OPTIONS=--target-list=%s'" % ','.join(TARGETS)))


def cached(tree):
    """Return the directory in the cache for the packages of a tree.

    Its name has the hash of what the packages are made of.
    """
    digest = hashlib.sha256(command(tree).encode())
    for name in ('debian/changelog', 'debian/control', 'debian/rules',
                 'debian/patches/series', *(
                     'debian/patches/' + line.split()[0] for line in
                     (tree / 'debian/patches/series').read_text().splitlines()
                     if line.strip() and not line.startswith('#'))):
        digest.update((tree / name).read_bytes() + b'\0')
    return common.cache_root() / 'deb' / ('qemu-' + digest.hexdigest()[:16])


def build(system, tree, inside):
    """Build the packages; what the cache has is not built again.

    The packages are left beside the tree.

    :param system: a chroot.System with the build dependencies and the tree
    :param tree: the same tree outside of it
    :param inside: path of the tree in the system
    :raises chroot.PackagingFailed:
    """
    place = cached(tree)
    beside = system.path(inside).parent
    if not place.exists():
        shared = common.cache_root() / 'deb'
        (shared / 'ccache').mkdir(parents=True, exist_ok=True)
        common.need_space(shared, 8)
        system.run("building QEMU's packages", 'cd %s && %s' % (
            inside, command(tree)), shared=shared)
        new = place.with_name(place.name + '.new')
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        for name in PACKAGES:
            path, = beside.glob(name + '_*.deb')
            shutil.copy(path, new)
        new.rename(place)
    for path in beside.glob('*.deb'):
        path.unlink()
    for path in place.iterdir():
        shutil.copy(path, beside)
