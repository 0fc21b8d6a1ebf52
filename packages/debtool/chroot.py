# SPDX-License-Identifier: Apache-2.0
"""Systems of a Debian suite in directories; programs run in them as root.

A system with some packages is made once, by mmdebstrap from the archive that
this machine installs from, and kept as an archive in the cache.  Each use
unpacks it into a directory of its own, which is gone afterwards.
"""

import contextlib
import hashlib
import os
from pathlib import Path
import shutil
import subprocess
import tempfile

from buildtool import common
from buildtool import debian
from nova_dedup_migrate import errors

#: Options of apt in the systems. Archives that this machine reaches may be
#: copies of some age, and are signed all the same.
APT = ('APT::Install-Recommends "false";', 'Acquire::Languages "none";',
       'Acquire::Check-Valid-Until "false";', 'Acquire::Retries "3";')
#: apt resolves dependencies, and finds older packages, without a network.
_KEPT = '--skip=cleanup/apt/lists'
#: Seconds for the longest command, a build of QEMU.
LIMIT = 6 * 3600


class PackagingFailed(errors.DedupMigrateError):
    template = '{what} failed with status {status}; see {log}{end}'


class Log:
    """Runs commands; what they write is in one file."""

    def __init__(self, path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b'')

    def run(self, what, command, **kwargs):
        """Run a command.

        :param what: what is being done, for the error
        :raises PackagingFailed:
        """
        with self.path.open('ab') as output:
            output.write(('$ %s\n' % ' '.join(map(str, command))).encode())
            output.flush()
            status = subprocess.run(
                [str(word) for word in command], stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, check=False, timeout=LIMIT,
                **kwargs).returncode
        if status:
            end = ''.join('\n  | ' + line for line in self.text()[-12:])
            raise PackagingFailed(what=what, status=status, log=self.path,
                                  end=end)

    def text(self):
        """Return the lines of the file."""
        return self.path.read_text(errors='replace').splitlines()


class System:
    """A system that is unpacked.

    :ivar directory: its root
    """

    def __init__(self, directory, log):
        self.directory, self.log = directory, log

    def path(self, path):
        return self.directory / path.lstrip('/')

    def run(self, what, script, network=False, shared=None):
        """Run a shell script as root, which ends at the first failure.

        :param shared: a directory of this machine that is /mnt there
        :raises PackagingFailed:
        """
        self.log.run(what, [
            'unshare', '--mount', '--pid', '--fork', '--kill-child',
            *(() if network else ('--net',)), 'sh', '-ec',
            'mount -t proc proc "$0/proc"; '
            'mount -t tmpfs -o mode=1777 shm "$0/dev/shm"; '
            '[ -n "$3" ] || ip link set lo up; '
            '[ -z "$2" ] || mount --bind "$2" "$0/mnt"; '
            'exec chroot "$0" env -i HOME=/root '
            'PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 '
            'DEBIAN_FRONTEND=noninteractive TERM=dumb sh -ec "$1"',
            self.directory, script, shared or '', network or ''])

    def read(self, what, script):
        """Run a script like run; return what it writes."""
        self.run(what, '{ %s\n} >/root/output' % script)
        return self.path('/root/output').read_text(errors='replace').strip()


def _archive(suite, include, log, control, profiles):
    """Return the archive of a system, made if the cache has none."""
    uri = debian.machine_archive()
    wanted = [suite, uri, *sorted(include), *APT, _KEPT]
    hooks = []
    if control is not None:
        wanted += [control.read_text(), *profiles]
        hooks = ['copy-in %s /root' % control.parent,
                 'chroot "$1" apt-get -qq build-dep --yes --arch-only '
                 '--build-profiles=%s /root' % ','.join(profiles)]
    key = hashlib.sha256('\n'.join(wanted).encode()).hexdigest()[:12]
    place = common.cache_root() / 'deb' / ('%s-%s.tar' % (suite, key))
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    common.need_command('mmdebstrap', 'mmdebstrap')
    common.need_space(place.parent, 3)
    common.say('making a system of %s' % suite)
    new = place.with_suffix('.new.tar')
    log.run('making a system of %s' % suite, [
        'mmdebstrap', '--variant=apt', _KEPT,
        # mmdebstrap takes no empty list
        *(['--include=' + ','.join(include)] if include else []),
        *('--aptopt=' + option for option in APT),
        '--dpkgopt=path-exclude=/usr/share/doc/*',
        '--dpkgopt=path-exclude=/usr/share/locale/*',
        *('--customize-hook=' + hook for hook in hooks),
        suite, new, 'deb [signed-by=%s] %s %s main' % (
            debian.KEYRING, uri, suite)])
    new.rename(place)
    return place


@contextlib.contextmanager
def system(suite, include, log, control=None, profiles=()):
    """Yield a System of a suite with some packages.

    :param control: a debian/control, whose build dependencies are there for
                    packages of one architecture
    :param profiles: build profiles of those dependencies
    :raises PackagingFailed: it cannot be made
    """
    if os.geteuid():
        raise PackagingFailed(
            what='making a system', status='none: this needs root',
            log=log.path, end='')
    archive = _archive(suite, include, log, control, profiles)
    directory = Path(tempfile.mkdtemp(prefix='nova-dedup-migrate-deb-'))
    try:
        directory.chmod(0o755)
        log.run('unpacking a system', ['tar', '-xf', archive, '-C',
                                       directory])
        # documentation of our packages is installed, and checked
        for path in directory.glob('etc/dpkg/dpkg.cfg.d/*mmdebstrap*'):
            path.unlink()
        for name in ('resolv.conf', 'hosts'):
            shutil.copy('/etc/' + name, directory / 'etc' / name)
        # no daemon is started here
        policy = directory / 'usr/sbin/policy-rc.d'
        policy.write_text('#!/bin/sh\nexit 101\n')
        policy.chmod(0o755)
        yield System(directory, log)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
