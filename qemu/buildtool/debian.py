# SPDX-License-Identifier: Apache-2.0
"""QEMU's source package, fetched through a private apt configuration.

The archive is the one the machine itself installs from; nothing of the
machine's own apt state is changed, and no privilege is needed.
"""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
import re
import subprocess

from buildtool import common
from buildtool import tree
from buildtool.common import BuildError

KEYRING = Path('/usr/share/keyrings/debian-archive-keyring.gpg')
TARGETS_FORMAT = '$(REPO_URI)|$(LABEL)|$(RELEASE)|$(CREATED_BY)'
_CODENAMES = ('stable', 'oldstable', 'bookworm', 'trixie', 'forky', 'sid')


@dataclasses.dataclass(frozen=True)
class Series:
    """Releases of QEMU that one set of hooks is for.

    :ivar name: what their versions begin with, such as 10.0
    :ivar suites: those of Debian that have one, tried in this order
    """

    name: str
    suites: tuple

    @property
    def is_default(self):
        return self is DEFAULT

    def has(self, version):
        return re.fullmatch(
            rf'{re.escape(self.name)}(\.\d+)?', version) is not None


DEFAULT = Series('10.0', ('trixie', 'bookworm-backports'))
SERIES = {one.name: one for one in (DEFAULT, Series('10.2', ('sid',)))}


@dataclasses.dataclass(frozen=True)
class Source:
    """An unpacked QEMU source.

    :ivar version: upstream's version, as in ``VERSION``
    :ivar identity: what stands for the content in the hash of inputs
    """

    version: str
    identity: str
    tree: Path


def archive_uri(targets):
    """Find the Debian archive in ``apt-get indextargets`` output.

    A machine that never ran ``apt-get update`` does not know the labels
    of its archives; the suite's name decides there.

    :param targets: lines in TARGETS_FORMAT
    """
    fallback = None
    for line in targets.splitlines():
        uri, label, release, created_by = line.split('|')
        if created_by != 'Packages':
            continue
        if label == 'Debian':
            return uri
        if label.startswith('$(') and release in _CODENAMES:
            fallback = fallback or uri
    if fallback is None:
        raise BuildError(
            'apt is not configured for a Debian archive, from which '
            "QEMU's source package would come: give --source-dir")
    return fallback


def upstream_version(debian_version):
    """1:10.0.13+ds-0+deb13u1 -> 10.0.13"""
    version = debian_version.partition(':')[2] or debian_version
    return re.split(r'[+~-]', version)[0]


def series_of(version):
    """Return the Series of an upstream version.

    :raises BuildError: there are no hooks for it
    """
    for one in SERIES.values():
        if one.has(version):
            return one
    raise BuildError(
        f'QEMU {version} is not supported: the patches are for '
        + ' and '.join(f'{name}.x' for name in SERIES))


def choose_version(available, wanted=None, series=DEFAULT):
    """Return the newest Debian version of a series, or None.

    :param available: Debian versions
    :param wanted: an upstream or a Debian version
    """
    best = None
    for version in available:
        upstream = upstream_version(version)
        bare = version.partition(':')[2] or version
        if wanted and wanted not in (upstream, version, bare):
            continue
        if not series.has(upstream):
            continue
        if best is None or _newer(version, best):
            best = version
    return best


def _newer(one, other):
    return subprocess.run(
        ['dpkg', '--compare-versions', one, 'gt', other]).returncode == 0


def from_folder(folder):
    """Use a source somebody else unpacked."""
    folder = Path(folder).resolve()
    try:
        version = (folder / 'VERSION').read_text().strip()
    except OSError:
        raise BuildError(
            f'{folder} is not an unpacked QEMU source: it has no '
            'readable VERSION') from None
    series_of(version)
    if not (folder / 'configure').is_file():
        raise BuildError(
            f'{folder} is not an unpacked QEMU source: it has no configure')
    digest = hashlib.sha256()
    for path, folders, files in os.walk(folder):
        skipped = tree.NOT_SOURCE if Path(path) == folder else ()
        folders[:] = sorted(
            name for name in folders
            if name not in skipped and name != '__pycache__')
        for name in sorted(files):
            full = Path(path, name)
            state = full.lstat()
            digest.update(
                f'{full.relative_to(folder)}|{state.st_size}|'
                f'{state.st_mtime_ns}\n'.encode())
    return Source(version, f'folder:{digest.hexdigest()}', folder)


def cached(cache, wanted=None, series=DEFAULT):
    """Return the newest source already unpacked, or None."""
    found = {}
    for note in cache.root.glob('source/*/source.json'):
        facts = json.loads(note.read_text())
        found[facts['debian_version']] = Source(
            facts['version'], facts['identity'], note.parent / 'tree')
    version = choose_version(found, wanted, series)
    return found.get(version)


def fetch(cache, wanted=None, series=DEFAULT):
    """Fetch and unpack the source package.

    :param wanted: an upstream or a Debian version; default: the newest
    :raises BuildError: with what each suite answered
    """
    uri = machine_archive()
    common.need_command('dpkg-source', 'dpkg-dev')
    refusals = []
    for suite in series.suites:
        try:
            return _fetch_from(cache, uri, suite, wanted, series)
        except BuildError as error:
            refusals.append(f'{suite}: {_reason(error)}')
    raise BuildError(
        "QEMU's source package cannot be had: " + '; '.join(refusals))


def _reason(error):
    """Say in one line why apt failed."""
    # apt's first error has the cause, the later ones its consequences.
    said = [line for line in common.last_lines(error.log or '', 200)
            if line.startswith('E: ')]
    return f'{error} ({said[0][3:]})' if said else str(error)


def machine_archive():
    """Return the URI of the Debian archive apt is configured for.

    :raises BuildError: none, or it cannot be verified here
    """
    common.need_command('apt-get', 'apt')
    if not KEYRING.is_file():
        raise BuildError(
            f'{KEYRING} is missing: install the Debian package '
            'debian-archive-keyring')
    targets = subprocess.run(
        ['apt-get', 'indextargets', '--format', TARGETS_FORMAT],
        capture_output=True, text=True)
    return archive_uri(targets.stdout)


def private_apt(cache, uri, suite, kind, architecture='amd64'):
    """Read a suite's package lists into a configuration of our own.

    :param kind: deb or deb-src
    :param architecture: of binary packages
    :returns: (its folder, options that make apt use it)
    """
    apt = cache.folder('apt', '-'.join(
        [suite] + [architecture] * (architecture != 'amd64')))
    for part in ('lists/partial', 'cache/archives/partial'):
        (apt / part).mkdir(parents=True, exist_ok=True)
    (apt / 'sources.list').write_text(
        f'{kind} [signed-by={KEYRING}] {uri} {suite} main\n')
    options = []
    for option in (f'Dir::Etc::sourcelist={apt}/sources.list',
                   'Dir::Etc::sourceparts=/dev/null',
                   f'Dir::State::lists={apt}/lists',
                   f'Dir::Cache={apt}/cache',
                   f'APT::Architecture={architecture}',
                   f'APT::Architectures={architecture}',
                   'APT::Sandbox::User=root',
                   'APT::Update::Error-Mode=any',
                   'Acquire::Languages=none',
                   'Acquire::Retries=2'):
        options += ['-o', option]
    common.say(f'asking {suite} for its packages')
    cache.run('reading the package lists', ['apt-get', *options, 'update'],
              apt, apt / 'update.log')
    return apt, options


def _fetch_from(cache, uri, suite, wanted, series):
    apt, options = private_apt(cache, uri, suite, 'deb-src')
    shown = subprocess.run(
        ['apt-cache', *options, 'showsrc', '--only-source', 'qemu'],
        capture_output=True, text=True)
    version = choose_version(
        re.findall(r'^Version: (\S+)', shown.stdout, re.MULTILINE), wanted,
        series)
    if version is None:
        raise BuildError(f'it has no QEMU {wanted or series.name + ".x"}')
    common.say(f'fetching QEMU {version}')
    cache.run(
        f'fetching QEMU {version}',
        ['apt-get', *options, 'source', '--download-only', '--only-source',
         f'qemu={version}'], apt, apt / 'fetch.log')
    bare = version.partition(':')[2] or version
    return unpack(cache, apt / f'qemu_{bare}.dsc', version)


def unpack(cache, dsc, debian_version):
    """Unpack a downloaded source package, with Debian's patches.

    dpkg-source compares every file with the checksums in the .dsc; apt
    checked the .dsc against the signed package list.
    """
    identity = hashlib.sha256(dsc.read_bytes()).hexdigest()
    version = upstream_version(debian_version)
    series_of(version)
    sources = cache.folder('source')
    place = sources / f'{version}-{identity[:12]}'
    if not place.exists():
        common.say('unpacking it')
        with common.scratch(sources, '.unpack-') as new:
            cache.run(
                'unpacking the source package',
                ['dpkg-source', '--extract', dsc, new / 'tree'],
                dsc.parent, dsc.parent / 'unpack.log')
            (new / 'source.json').write_text(json.dumps({
                'version': version, 'debian_version': debian_version,
                'identity': f'dsc:{identity}'}) + '\n')
            new.chmod(0o755)
            new.rename(place)
    for used in dsc.parent.glob('qemu_*'):
        used.unlink()
    return Source(version, f'dsc:{identity}', place / 'tree')
