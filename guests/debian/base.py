# SPDX-License-Identifier: Apache-2.0
"""Debian 12 with the guest's packages, as an archive.

It comes from the archives that this machine's apt is configured for.
"""

import os
from pathlib import Path
import re
import subprocess

from guests import cache
from guests.errors import BuildError
from guests.errors import run

SUITE = 'bookworm'
KEYRING = Path('/usr/share/keyrings/debian-archive-keyring.gpg')
PACKAGES = ('systemd-sysv', 'udev', 'kmod', 'iproute2', 'e2fsprogs',
            'linux-image-cloud-amd64', 'initramfs-tools', 'zstd',
            'nginx-light', 'postgresql-15', 'qemu-guest-agent')
#: Nobody reads manuals there, and LLVM is for what jit = off turns off.
_WITHOUT = ('/usr/share/man/*', '/usr/share/locale/*', '/usr/share/doc/*',
            '/usr/lib/x86_64-linux-gnu/libLLVM*')
_WITH = ('/usr/share/doc/*/copyright',)
_TARGETS = '$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)'
#: How this machine's apt reaches its archives.
_NETWORK = re.compile(r'^(Acquire::(?:http|https|ForceIPv[46])\b.*)$',
                      re.MULTILINE)


def sources(targets):
    """Return a sources.list of this Debian release.

    A machine that never ran apt-get update does not know whose archives
    it has; the suite's name decides there.

    :param targets: lines in the format _TARGETS
    :raises BuildError: apt has no archive of the release
    """
    lines = []
    for target in targets.splitlines():
        uri, suite, component, origin = target.split('|')
        if (origin == 'Debian' or origin.startswith('$(')) and (
                suite in (SUITE, SUITE + '-updates', SUITE + '-security')
                and component == 'main'):
            lines.append('deb [signed-by=%s] %s %s main\n' % (
                KEYRING, uri, suite))
    lines = list(dict.fromkeys(lines))
    if not any(' %s main' % SUITE in line for line in lines):
        raise BuildError('apt is not configured for Debian 12 (%s), from '
                         'which the guest would be made' % SUITE)
    return ''.join(lines)


def archive() -> Path:
    """The file system as a tar archive, made if it is not cached.

    What apt offers now is not part of the key: an archive that is there
    stays until it is removed.

    :raises BuildError: a tool is missing or fails, or there is no network
    """
    name = cache.key('\0'.join(PACKAGES), [Path(__file__)])
    return cache.entry('debian-base', name, _build) / 'root.tar'


def _build(work):
    check_root()
    if not KEYRING.is_file():
        raise BuildError('%s is missing: install debian-archive-keyring'
                         % KEYRING)
    listed = work / 'sources.list'
    listed.write_text(sources(run(
        ['apt-get', 'indextargets', '--format', _TARGETS,
         'Created-By: Packages', 'Architecture: amd64'])))
    network = work / 'apt.conf'
    network.write_text('\n'.join(_NETWORK.findall(
        run(['apt-config', 'dump', '--no-empty']))) + '\n')
    run_logged(
        ['mmdebstrap', '--mode=root', '--variant=minbase', '--format=tar',
         '--architectures=amd64', '--include=' + ','.join(PACKAGES),
         '--aptopt=%s' % network, '--aptopt=Acquire::Retries "2"',
         '--dpkgopt=force-unsafe-io',
         *('--dpkgopt=path-exclude=' + path for path in _WITHOUT),
         *('--dpkgopt=path-include=' + path for path in _WITH),
         SUITE, work / 'root.tar', listed], work)
    for path in listed, network:
        path.unlink()


def run_logged(command, work):
    """Run a command that has much to say.

    :param work: directory for its temporary files
    :raises BuildError: with its first complaint, and where its log is
    """
    log = cache.root() / ('debian-%s.log' % command[0])
    environment = {**os.environ, 'TMPDIR': str(work), 'LC_ALL': 'C'}
    with log.open('w') as out:
        try:
            subprocess.run([str(word) for word in command], check=True,
                           stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                           env=environment)
        except FileNotFoundError:
            raise BuildError('%s is not installed' % command[0]) from None
        except subprocess.CalledProcessError:
            raise BuildError('%s failed: %s, see %s' % (
                command[0], complaint(log.read_text(errors='replace')),
                log)) from None


def complaint(text):
    """The first line of a log that complains, or its last one."""
    found = re.search(
        r'^(?:E: |dpkg: error |.*\berror: |.*\bFATAL: ).*', text,
        re.MULTILINE)
    return found[0] if found else (text.strip().splitlines() or [''])[-1]


def check_root():
    """:raises BuildError: this is not root"""
    if os.geteuid() != 0:
        raise BuildError('the Debian guest has files of several users: '
                         'only root can make it')
