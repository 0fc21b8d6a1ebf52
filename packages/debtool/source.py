# SPDX-License-Identifier: Apache-2.0
"""The trees that source packages are made of, each with a debian directory.

Ours is the source tree of this repository with ``packages/debian``.  QEMU's
is Debian's own source package with our files and patches as one more patch
of its series and an entry in its changelog, whose version has the suffix
``+dedup1``, and with zstd in the build for microvm, which Debian has without
most libraries.  Nothing else in ``debian/`` differs from Debian's.
"""

import datetime
from email import utils
import os
import re
import shutil
import subprocess

from buildtool import cli
from buildtool import common
from buildtool import debian
from buildtool import tree

TOP = common.REPOSITORY
MAINTAINER = ('nova-dedup-migrate developers '
              '<openstack-discuss@lists.openstack.org>')
SUFFIX = '+dedup1'
PATCH = 'nova-dedup-migrate.patch'
#: Debian's rules read this variable, and do not set it.
MICROVM = 'QEMU_MICROVM_CONFIGURE_OPTIONS'


def upstream_version(commit='HEAD'):
    """Return our version in Debian's form, of git's tags and commits.

    0.2.0.dev12 becomes 0.2.0~dev12, which is older than 0.2.0.
    """
    described = subprocess.run(
        ['git', 'describe', '--tags', '--match', '[0-9]*', '--long',
         commit], cwd=TOP, capture_output=True, text=True,
        check=False).stdout.strip()
    if described:
        tag, commits, _ = described.rsplit('-', 2)
    else:
        tag = re.search(r'^version = (.*)$',
                        (TOP / 'setup.cfg').read_text(), re.MULTILINE)[1]
        commits = subprocess.run(
            ['git', 'rev-list', '--count', commit], cwd=TOP, check=True,
            capture_output=True, text=True).stdout.strip()
        return '%s~dev%s' % (tag, commits)
    if commits == '0':
        return tag
    numbers = tag.split('.')
    numbers[-1] = str(int(numbers[-1]) + 1)
    return '%s~dev%s' % ('.'.join(numbers), commits)


def changelog(package, version, suite, text, paths=()):
    """Return one entry of a debian/changelog.

    Its time is that of the last commit.

    :param paths: the last one that changes one of these, if there are any
    """
    seconds = int(os.environ.get('SOURCE_DATE_EPOCH') or subprocess.run(
        ['git', 'log', '-1', '--format=%ct', '--', *paths], cwd=TOP,
        check=True, capture_output=True, text=True).stdout)
    date = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return '%s (%s) %s; urgency=medium\n\n  * %s\n\n -- %s  %s\n' % (
        package, version, suite, text, MAINTAINER,
        utils.format_datetime(date))


def ours(directory, suite, commit=None):
    """Make the tree of our source package, and its archive beside it.

    :param directory: a new one
    :param commit: of which it is; default: files as they are now
    :returns: the tree
    """
    version = upstream_version(commit or 'HEAD')
    place = directory / ('nova-dedup-migrate-' + version)
    if commit is None:
        _copy_tracked(place)
    else:
        archive = subprocess.run(
            ['git', 'archive', '--prefix=%s/' % place.name, commit], cwd=TOP,
            check=True, capture_output=True).stdout
        subprocess.run(['tar', '-xC', directory], input=archive, check=True)
    subprocess.run(
        ['tar', '-caf', 'nova-dedup-migrate_%s.orig.tar.xz' % version,
         '--owner=0', '--group=0', '--sort=name', place.name],
        cwd=directory, check=True)
    shutil.copytree(place / 'packages' / 'debian', place / 'debian')
    (place / 'debian' / 'changelog').write_text(changelog(
        'nova-dedup-migrate', version + '-1', suite,
        'A build of the upstream source; see its release notes.'))
    return place


def _copy_tracked(place):
    listed = subprocess.run(
        ['git', 'ls-files', '-z', '--cached'], cwd=TOP, check=True,
        capture_output=True, text=True).stdout
    for name in filter(None, listed.split('\0')):
        if (TOP / name).is_file():
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TOP / name, target)


def qemu(directory, suite, log):
    """Make the tree of QEMU's source package with our series, likewise.

    :raises common.BuildError: Debian's source cannot be had
    """
    cache = common.Cache()
    source = debian.cached(cache)
    if source is None:
        with cache.locked():
            source = debian.fetch(cache)
    version = re.search(
        r'\((?:\d+:)?([^)]+)\)',
        (source.tree / 'debian/changelog').read_text())[1]
    place = directory / ('qemu-' + version.rpartition('-')[0])
    shutil.copytree(source.tree, place, symlinks=True,
                    ignore=shutil.ignore_patterns('.pc'))
    _fetch_original(cache, source, directory, log)
    _add_patch(place, directory, log)
    _add_zstd(place / 'debian/rules')
    path = place / 'debian/changelog'
    path.write_text(changelog(
        'qemu', _epoch(path) + version + SUFFIX, suite,
        'Leave out pages that storage holds from live migrations.',
        (cli.SRC, cli.PATCHES)) + '\n' + path.read_text())
    return place


def _add_zstd(rules):
    """Have the build for microvm use zstd, which our files need."""
    text = rules.read_text()
    if '${%s}' % MICROVM not in text:
        raise common.BuildError("Debian's QEMU has changed: its rules have "
                                'no ' + MICROVM)
    rules.write_text('%s\n%s += --enable-zstd\n' % (text, MICROVM))


def _epoch(path):
    return re.search(r'\((\d+:)?', path.read_text())[1] or ''


def _fetch_original(cache, source, directory, log):
    """Copy upstream's archive, which the cache has beside the tree."""
    archives = list(source.tree.parent.glob('qemu_*.orig.tar.*'))
    if not archives:
        raise common.BuildError(
            'the cache has no archive of QEMU %s beside %s' % (
                source.version, source.tree))
    for archive in archives:
        shutil.copy(archive, directory)


def _add_patch(place, directory, log):
    """Put the difference that our files and patches make into the series."""
    changed = directory / 'changed'
    shutil.copytree(place, changed, symlinks=True)
    for patch in tree.series(cli.PATCHES):
        log.run('applying %s' % patch.name,
                ['patch', '-p1', '--no-backup-if-mismatch', '-d', changed,
                 '-i', patch])
    for name, path in tree.overlay(cli.SRC).items():
        target = changed / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    made = subprocess.run(
        ['diff', '-Nru', '--exclude=debian', place.name, changed.name],
        cwd=directory, capture_output=True, check=False)
    if made.returncode != 1:
        raise common.BuildError('no patch could be made of our files')
    header = ('Description: leave out pages that storage holds from live '
              'migrations\nForwarded: not-needed\nLast-Update: 2026-11-22\n'
              '---\n')
    patches = place / 'debian/patches'
    (patches / PATCH).write_bytes(header.encode() + made.stdout)
    with (patches / 'series').open('a') as series:
        series.write(PATCH + '\n')
    shutil.rmtree(changed)
    log.run('applying the patch', ['patch', '-p1', '-s', '-d', place, '-i',
                                   patches / PATCH])
