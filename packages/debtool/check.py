# SPDX-License-Identifier: Apache-2.0
"""Installs packages in a clean system, upgrades, removes and purges them."""

import shutil

from debtool import repository

#: What the system has before: what apt and the checks of units need.
INCLUDE = ('ca-certificates', 'systemd')
#: What is installed.
PACKAGES = ('python3-nova-dedup-migrate', 'nova-dedup-migrate-agent',
            'page-cache-lister')
_REPOSITORY = '/srv/nova-dedup-migrate'
#: Files that other packages write when they are installed, and logs.
_STATE = (r'find /etc /usr /lib /opt /srv/none /var/lib -xdev 2>/dev/null '
          r'| grep -v -E "^/var/lib/(apt|dpkg|systemd/deb-systemd-helper)|'
          r'/__pycache__(/|$)|^/etc/ld.so.cache|^/usr/lib/udev/hwdb.bin" '
          r'| sort >%s')

_DRIVER = '''\
python3 - <<'EOF'
import importlib.util
import nova.virt
spec = importlib.util.find_spec('nova.virt.dedup_migrate')
assert spec.origin.startswith('/usr/lib/python3/dist-packages/nova_dedup'), (
    spec)
from nova.virt.dedup_migrate import DedupMigrateLibvirtDriver
from nova.virt.libvirt import driver
assert issubclass(DedupMigrateLibvirtDriver, driver.LibvirtDriver)
EOF
'''


class Check:
    """The steps, each a method; one raises PackagingFailed if it fails.

    :param system: chroot.System
    :param packages: paths of .deb files
    """

    def __init__(self, system, packages):
        self.system = system
        self.packages = packages
        self.steps = (
            ('dependencies', self.dependencies), ('install', self.install),
            ('driver beside Nova', self.driver), ('commands', self.commands),
            ('units', self.units), ('configuration', self.configuration),
            ('upgrade', self.upgrade), ('remove', self.remove),
            ('purge', self.purge), ('install again', self.install))

    def dependencies(self):
        """Install what the packages depend on; it belongs to the system."""
        self._offer(self.packages)
        self.system.run(
            'installing dependencies',
            'apt-get -q update; apt-get -q install -y --no-install-recommends '
            'python3-nova; apt-get -q install -y --no-install-recommends %s; '
            'apt-get -q purge -y %s; %s' % (
                ' '.join(PACKAGES), ' '.join(PACKAGES), _STATE % '/before'),
            network=True)

    def _offer(self, packages):
        place = self.system.path(_REPOSITORY)
        repository.make(place, packages)
        self.system.path('/etc/apt/sources.list.d/ours.list').write_text(
            'deb [trusted=yes] file:%s ./\n' % _REPOSITORY)

    def install(self):
        self.system.run(
            'installing', 'apt-get -q install -y --no-install-recommends %s; '
            'dpkg --audit; test -z "$(dpkg --audit)"' % ' '.join(PACKAGES))

    def driver(self):
        self.system.run('importing the driver', _DRIVER)

    def commands(self):
        self.system.run(
            'running the commands',
            'nova-dedup-migrate --version; nova-dedup-migrate-agent --help '
            '>/dev/null; page-cache-lister --version; '
            'for page in /usr/share/man/man*/*dedup* '
            '/usr/share/man/man8/page-cache-lister.8.gz; do '
            'test -e "$page"; done')

    def units(self):
        self.system.run(
            'verifying the units',
            'for unit in nova-dedup-migrate-agent page-cache-lister; do '
            'systemd-analyze verify --man=no --recursive-errors=no '
            '/usr/lib/systemd/system/$unit.service; done')

    def configuration(self):
        """The files of /etc are conffiles, sudo accepts ours."""
        self.system.run(
            'checking configuration files',
            'visudo -c -f /etc/sudoers.d/nova-dedup-migrate; '
            'test "$(stat -c %a /etc/sudoers.d/nova-dedup-migrate)" = 440; '
            'dpkg-query -W -f "\\${Conffiles}\\n" nova-dedup-migrate-agent | '
            'grep -q /etc/logrotate.d/nova-dedup-migrate-agent')

    def upgrade(self):
        """Upgrade from packages that differ in their version."""
        self.system.run('making older packages', '''
            mkdir /older
            for package in %s/*.deb; do
                rm -rf /unpacked; dpkg-deb -R "$package" /unpacked
                sed -i -E -e 's/^(Version: .*)$/\\1~older/' \\
                    -e 's/(nova-dedup-migrate \\(= [^)]*)/\\1~older/' \\
                    /unpacked/DEBIAN/control
                dpkg-deb -b /unpacked "/older/$(basename "$package")"
            done
            dpkg -i /older/*.deb
            echo '# changed' >>/etc/logrotate.d/nova-dedup-migrate-agent
            apt-get -q install -y --no-install-recommends %s
            test -z "$(dpkg -l | grep '~older')"
            grep -q '# changed' /etc/logrotate.d/nova-dedup-migrate-agent
            rm -rf /older /unpacked''' % (_REPOSITORY, ' '.join(PACKAGES)))
        self.driver()

    def remove(self):
        """Nova works without us, and what was configured stays."""
        self.system.run(
            'removing',
            'apt-get -q remove -y %s; '
            'test -e /etc/logrotate.d/nova-dedup-migrate-agent; '
            'python3 -c "import nova.virt, importlib.util; assert '
            'importlib.util.find_spec(\'nova.virt.dedup_migrate\') is None"'
            % ' '.join(PACKAGES))

    def purge(self):
        """Nothing is left that was not there before."""
        self.system.run(
            'purging',
            'apt-get -q purge -y %s; %s; diff /before /after' % (
                ' '.join(PACKAGES), _STATE % '/after'))


def of_suite(results):
    """Return the packages that were built, paths of .deb files."""
    if shutil.which('dpkg-scanpackages') is None:
        raise FileNotFoundError(
            'dpkg-scanpackages is missing: install dpkg-dev')
    return [path for path in sorted(results.glob('*.deb'))
            if path.name.partition('_')[0] in PACKAGES]
