# SPDX-License-Identifier: Apache-2.0
"""Installs, upgrades, removes and purges packages in clean systems.

Ours are checked beside Debian's own OpenStack, the program for guests also
in the oldest supported release, QEMU's in place of Debian's.
"""

import contextlib
from pathlib import Path
import re
import shutil
import subprocess
import tempfile

from buildtool import common
from debtool import build
from debtool import chroot
from debtool import guest_tests
from debtool import host
from debtool import kolla
from debtool import openstack
from debtool import qemu
from debtool import repository
from debtool import services
from debtool import source
from testkit import releases

RESULTS = source.TOP / 'build' / 'deb-check'
#: Of the release before, which has all files of Python in one package.
OLD = ('python3-nova-dedup-migrate', 'nova-dedup-migrate-agent',
       'page-cache-lister')
NEW = ('nova-dedup-migrate-controller', 'nova-dedup-migrate-tempest-plugin',
       'python3-nova-dedup-migrate-dashboard')
#: Debian's Cinder may be older than what it needs.
ASSIST = 'cinder-backup-assist'
#: What a host has besides what the packages depend on.
HOST = ('apparmor', 'curl', 'libvirt-daemon-system', 'logrotate',
        'nova-compute', 'python3-libnbd', 'systemd', 'uwsgi-core',
        'uwsgi-plugin-python3')
#: What a quick check has instead; dependencies are left out.
QUICK = ('adduser', 'logrotate', 'procps', 'python3', 'sudo', 'systemd',
         'uwsgi-core')
GUEST_SUITE = 'bookworm'

_UNITS = {'nova-dedup-migrate-agent.service': 'enabled',
          'nova-dedup-migrate.service': 'disabled',
          'nova-dedup-migrate-api.service': 'disabled',
          'nova-dedup-migrate-engine.service': 'disabled',
          'page-cache-lister.service': 'static'}
_ETC = '/etc/nova-dedup-migrate/'
_PROFILE = 'usr.bin.nova-dedup-migrate-agent'
_OWNERS = {
    '/etc/apparmor.d/' + _PROFILE: '644 root:root',
    '/etc/apparmor.d/local/' + _PROFILE: '644 root:root',
    '/etc/sudoers.d/nova-dedup-migrate': '440 root:root',
    '/etc/logrotate.d/nova-dedup-migrate-controller': '644 root:root',
    _ETC + 'nova-dedup-migrate.conf': '640 root:nova-dedup-migrate',
    _ETC + 'api-uwsgi.ini': '644 root:root',
    '/var/lib/nova-dedup-migrate':
        '750 nova-dedup-migrate:nova-dedup-migrate',
    '/var/log/nova-dedup-migrate':
        '750 nova-dedup-migrate:nova-dedup-migrate'}
#: What services leave: a removal keeps it, a purge does not. Logs of services
#: with Nova's or Cinder's configuration are in log_dir of that.
_DATA = (
    '/var/lib/nova/dedup_index/a', '/var/lib/nova/dedup_journals/a',
    '/var/lib/nova/dedup_migrate/operations/a',
    '/var/lib/nova/dedup_migrate/volumes/a', '/var/lib/nova/dedup_replicas/a',
    '/var/lib/nova-dedup-migrate/a', '/var/log/nova-dedup-migrate/a.log',
    '/var/log/nova/nova-dedup-migrate-agent.log',
    '/var/log/nova/nova-dedup-migrate-agent.log.1',
    '/var/log/cinder/cinder-backup-assist.log',
    '/var/log/cinder/cinder-backup-assist.log.1')
#: debhelper's purge of a package with a profile removes this directory of
#: AppArmor's if it is empty; who disables a profile makes it.
_APPARMOR = ('etc/apparmor.d/disable', '-')
_HELPER = ('/usr/bin/privsep-helper --config-file /etc/nova/nova.conf '
           '--privsep_context %s.context '
           '--privsep_sock_path /tmp/tmpabc/privsep.sock')
_MODULES = ('cinder_backup_assist', 'nova_dedup_migrate',
            'nova_dedup_migrate_dashboard',
            'nova_dedup_migrate_tempest_plugin')
#: A change that an operator makes, which an upgrade keeps.
_CHANGED = '/etc/sudoers.d/nova-dedup-migrate'


class Checks:
    """Rows of a table, each of a check that returns what it shows."""

    def __init__(self, table):
        self.table = table

    def row(self, name, target, function, *arguments, **options):
        """Add a row; a check that fails does not end the others."""
        try:
            value, ok = function(*arguments, **options), True
        except (host.CheckFailed, chroot.PackagingFailed) as error:
            value, ok = str(error), False
            print('%s: %s' % (name, value))
        value = str(value or 'done').strip()
        self.table.add(name, value.splitlines()[0][:70], '', target, ok)
        return ok


def needed(control):
    """Return what our packages depend on, of a debian/control."""
    binaries = control.partition('\nPackage: ')[2]
    names = set()
    for field in re.findall(r'^(?:Pre-)?Depends:((?:\n .*)+)', binaries,
                            re.MULTILINE):
        names.update(re.findall(r'^ ([a-z0-9][a-z0-9.+-]+)', field,
                                re.MULTILINE))
    return names - set(re.findall(r'^Package: (\S+)', control, re.MULTILINE))


def packages(suite):
    """Return {name: path} of our packages for a suite, newest build.

    :raises CheckFailed: make deb has to be run first
    """
    found = {path.name.partition('_')[0]: path for path in
             (build.RESULTS / suite).glob('*.deb')}
    ours = {name: path for name, path in found.items()
            if name in (*OLD, *NEW, ASSIST)}
    version = source.upstream_version() + '-1'
    for name in (*OLD, *NEW, ASSIST):
        host.check(name in ours and _version(ours[name]) == version,
                   '%s %s is not built: run make deb' % (name, version))
    return ours


def previous(suite, log):
    """Return paths of packages of an earlier commit; the cache keeps them.

    :raises chroot.PackagingFailed:
    """
    commit = releases.PREVIOUS[:12]
    place = common.cache_root() / 'deb' / ('%s-%s' % (suite, commit))
    if not place.exists():
        common.say('building the packages of %s' % commit)
        with tempfile.TemporaryDirectory() as name:
            tree = source.ours(Path(name), suite, releases.PREVIOUS)
            with chroot.system(suite, (*build.TOOLS, *build.OURS),
                               log) as system:
                shutil.copytree(name, system.path('/build'), symlinks=True)
                build.ours(system, '/build/' + tree.name)
                new = place.with_name(place.name + '.new')
                shutil.rmtree(new, ignore_errors=True)
                new.mkdir()
                for path in system.path('/build').glob('*.deb'):
                    shutil.copy(path, new)
                new.rename(place)
    return sorted(place.glob('*.deb'))


@contextlib.contextmanager
def _offered(suite, include, log):
    """Yield a system that reads packages from /repo, too."""
    with chroot.system(suite, include, log) as system:
        system.path('/etc/apt/sources.list.d/check.list').write_text(
            'deb [trusted=yes] file:/repo ./\n')
        yield system


def _offer(system, paths):
    repository.make(system.path('/repo'), paths)
    # The lists of the distribution are those with which it was made.
    system.run('reading the packages', 'apt-get update -o Dir::Etc::'
               'sourcelist=/etc/apt/sources.list.d/check.list '
               '-o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0')


def _apt(system, what, *names, network=False):
    return system.run('%s packages' % what, 'apt-get --yes '
                      '-o Dpkg::Options::=--force-confold %s %s </dev/null'
                      % (what, ' '.join(names)), network=network)


def _force(system, paths):
    """Install packages, even if the suite lacks what they depend on.

    Debian's packages change: those of an earlier commit may depend on a
    version that is not there any more.
    """
    for path in paths:
        shutil.copy(path, system.path('/root'))
    system.run('installing packages', 'cd /root; dpkg --install '
               '--force-depends ' + ' '.join(path.name for path in paths))


def ours(checks, log):
    """Check our packages beside Debian's OpenStack."""
    suite = build.SUITES['nova-dedup-migrate']
    new = packages(suite)
    version = _version(new[OLD[0]])
    old = previous(suite, log)
    include = {*HOST, *needed(
        (source.TOP / 'packages/debian/control').read_text())}
    with _offered(suite, sorted(include), log) as system:
        before = host.snapshot(system)
        row = checks.row
        _force(system, [path for path in old
                        if path.name.partition('_')[0] in OLD])
        row('install %s' % _version(old[0]), 'all of it', host.installed,
            system, OLD, _version(old[0]), False)
        system.run('changing a file', 'echo "# changed" >>' + _CHANGED)
        _offer(system, new.values())
        _apt(system, 'install', *OLD, *NEW)
        row('upgrade, install new ones', 'all of it, no question', _upgraded,
            system, version)
        _host_rows(row, system)
        # nova-common has the configuration
        row('logrotate of the agent', 'rotates, keeps the owner',
            host.rotation, system, '/etc/logrotate.d/nova-common',
            '/var/log/nova/nova-dedup-migrate-agent.log', 'nova:adm')
        row('nova-compute imports the driver', "with Debian's Nova",
            openstack.driver, system)
        row('commands', 'import what they need', openstack.command_line,
            system)
        row('Tempest', 'finds the plugin', openstack.tempest, system)
        row('Horizon', 'finds three panels', openstack.horizon, system)
        row('AppArmor', "the agent's profile, libvirt's with our rules",
            _apparmor, system)
        services.prepare(system)
        for name, check in (('agent', services.agent),
                            ('API and engine', services.whole),
                            ('API in uWSGI', services.api),
                            ('engine', services.engine)):
            row('start the %s' % name, 'answers, ends at SIGTERM', check,
                system)
        shutil.rmtree(system.path('/srv/check'))
        row('apt install %s' % ASSIST, 'or says what Debian lacks',
            _assist, system, new[ASSIST])
        _leave(row, system, before)


def ours_quick(checks, log):
    """Check our packages by themselves, without what they depend on."""
    suite = build.SUITES['nova-dedup-migrate']
    new = packages(suite)
    with chroot.system(suite, QUICK, log) as system:
        # What nova-common and cinder-common make; sudo allows no command
        # that is not there.
        system.run('adding users', '''
install -m 755 /dev/null /usr/bin/privsep-helper
for name in nova cinder; do
    adduser --quiet --system --group --home /var/lib/$name $name
    install -d -o $name -g adm -m 750 /var/log/$name
done''')
        before = host.snapshot(system)
        row = checks.row
        _force(system, new.values())
        row('install', 'all of it, without dependencies', host.installed,
            system, (*OLD, *NEW, ASSIST), _version(new[OLD[0]]), False)
        _host_rows(row, system)
        row('unit of %s' % ASSIST, 'systemd-analyze passes', host.units,
            system, {'cinder-backup-assist.service': 'disabled'})
        _leave(row, system, before)


def _version(path):
    return path.name.split('_')[1]


def _leave(row, system, before):
    names = ' '.join((*OLD, *NEW, ASSIST))
    system.run('writing data', '\n'.join(
        'install -D /dev/null ' + path for path in _DATA))
    system.run('removing packages', 'dpkg --remove ' + names)
    row('remove', 'configuration and data are left, nothing else', _removed,
        system, before)
    system.run('purging packages', 'dpkg --purge ' + names)
    row('purge', 'nothing is left', _same, system, before)


def _host_rows(row, system):
    row('owners and modes', 'as documented', host.owners, system, _OWNERS)
    row('user of the controller', 'system user, no login', host.user, system,
        'nova-dedup-migrate', '/var/lib/nova-dedup-migrate')
    row('units', 'systemd-analyze passes, enabled as documented', host.units,
        system, _UNITS)
    row('sudo', 'the helper and nothing else', host.sudoers, system,
        '/etc/sudoers.d/nova-dedup-migrate', 'nova',
        _HELPER % 'nova_dedup_migrate.images.privileged',
        _HELPER % 'nova_dedup_migrate.storage.writer')
    row('logrotate of the controller', 'rotates, keeps the owner',
        host.rotation, system, '/etc/logrotate.d/'
        'nova-dedup-migrate-controller', '/var/log/nova-dedup-migrate/a.log',
        'nova-dedup-migrate:nova-dedup-migrate')
    row('page-cache-lister', 'runs', system.run, 'page-cache-lister',
        'page-cache-lister --help')


def _upgraded(system, version):
    kept = system.path(_CHANGED).read_text()
    host.check('# changed' in kept, 'the upgrade overwrote ' + _CHANGED)
    system.path(_CHANGED).write_text(kept.replace('# changed\n', ''))
    # It is there if the package has another file than before.
    dist = system.path(_CHANGED + '.dpkg-dist')
    if dist.exists():
        dist.rename(system.path(_CHANGED))
    return host.installed(system, (*OLD, *NEW), version)


def _apparmor(system):
    shutil.copytree(source.TOP / 'etc/apparmor.d/local',
                    system.path('/root/apparmor/local'))
    return system.read('parsing profiles', '''
cp -a /etc/apparmor.d/. /root/apparmor.d
cp -a /root/apparmor/local/. /root/apparmor.d/local
for name in usr.sbin.libvirtd usr.lib.libvirt.virt-aa-helper %s; do
    apparmor_parser --skip-kernel-load --skip-cache --base /root/apparmor.d \\
        /root/apparmor.d/$name
    echo $name
done
rm -r /root/apparmor /root/apparmor.d''' % _PROFILE).replace('\n', ', ')


def _assist(system, path):
    """Install cinder-backup-assist; by force if Debian's Cinder is older."""
    said = ''
    try:
        _apt(system, 'install', ASSIST)
    except chroot.PackagingFailed:
        said = host.refuses(system, ASSIST, r'python3-cinder \(>= [^)]+\)',
                            network=False) + ' is not there; '
        _force(system, [path])
    said += host.units(system, {'cinder-backup-assist.service': 'disabled'})
    return said


def _removed(system, before):
    """Nothing is left but conffiles, data, and the user."""
    gone = [path for path in _DATA if not system.path(path).exists()]
    host.check(not gone, 'these are gone: ' + ', '.join(gone))
    left = [(path, sign) for path, sign in
            host.differences(before, host.snapshot(system))
            if not re.match(r'etc/|var/(lib|log)/', path)]
    host.check(not left, 'there is ' + host.short(left))
    return 'done'


def _same(system, before, snapshot=host.snapshot):
    changed = [one for one in host.differences(before, snapshot(system))
               if one != _APPARMOR]
    host.check(not changed, 'there is ' + host.short(changed))
    return 'done'


def from_nothing(checks, log):
    """Check that a system without OpenStack gets all that is needed."""
    suite = build.SUITES['nova-dedup-migrate']
    new = packages(suite)
    with _offered(suite, (), log) as system:
        _offer(system, new.values())
        checks.row('dependencies in %s' % suite, 'apt resolves them',
                   _resolves, system, *OLD, *NEW)


def _resolves(system, *names):
    text = system.read('simulating', 'apt-get install --simulate --yes '
                       + ' '.join(names))
    return '%d packages' % len(re.findall('^Inst ', text, re.MULTILINE))


def guests(checks, log):
    """Check the program for guests in the oldest release."""
    new = packages(build.SUITES['nova-dedup-migrate'])
    with _offered(GUEST_SUITE, ('systemd',), log) as system:
        _offer(system, new.values())
        before = host.snapshot(system)
        row = checks.row
        name = 'page-cache-lister'
        _apt(system, 'install', name)
        row('%s in %s' % (name, GUEST_SUITE), 'installed', host.installed,
            system, (name,), _version(new[name]))
        row('its unit in %s' % GUEST_SUITE, 'systemd-analyze passes',
            host.units, system, {name + '.service': 'static'})
        row('it in %s' % GUEST_SUITE, 'runs', system.run, name,
            name + ' --help')
        _apt(system, 'purge', name)
        row('purge it in %s' % GUEST_SUITE, 'nothing is left', _same, system,
            before)
        row('others in %s' % GUEST_SUITE, 'apt says what is too old',
            host.refuses, system, OLD[0], r'\S+ \(>= [^)]+\)', network=False)


def emulator(checks, log):
    """Check QEMU's packages in place of Debian's."""
    suite = build.SUITES['qemu']
    found = sorted((build.RESULTS / suite).glob('qemu-*.deb'))
    if not found:
        checks.table.add("QEMU's packages", 'not run: they are not built', '',
                         'if make deb ARGS=qemu has built them', True)
        return
    with _offered(suite, qemu.PACKAGES, log) as system:
        _offer(system, found)
        row = checks.row
        epoch = system.read('reading versions', "dpkg-query -W -f "
                            "'${Version}' qemu-system-x86").split(':')[0]
        version = '%s:%s' % (epoch, _version(found[0]))
        before = _but_documents(system)
        _apt(system, 'install', *qemu.PACKAGES)
        row("QEMU in place of Debian's", 'all of one version',
            host.installed, system, qemu.PACKAGES, version)
        row("QEMU's files", "those of Debian's packages", _files, system,
            before)
        row('QEMU answers', 'has our commands', _answers, system)
        row('guests migrate', 'tests that compare all memory pass',
            guest_tests.run, system, log)
        # Debian's are in its archive only.
        _apt(system, 'install', '--allow-downgrades',
             *('%s/%s' % (name, suite) for name in qemu.PACKAGES),
             network=True)
        row("back to Debian's QEMU", 'nothing is left', _same, system, before,
            _but_documents)
        row("Kolla's step for libvirt", 'installs our QEMU',
            kolla.libvirt_image, system)


def _files(system, before):
    changed = [(path, sign) for path, sign in
               host.differences(before, _but_documents(system)) if sign != '*']
    host.check(not changed, 'files differ: ' + host.short(changed))
    return 'the same names'


def _but_documents(system):
    """Return a snapshot without documents and translations.

    Debian's packages are there without them, since the system is made so.
    """
    return {path: what for path, what in host.snapshot(system).items()
            if not path.startswith(('usr/share/doc/', 'usr/share/locale/'))}


def _answers(system):
    found = system.read('starting QEMU', '''
printf '%s\\n' '{"execute": "qmp_capabilities"}' \\
    '{"execute": "query-commands"}' '{"execute": "quit"}' |
    qemu-system-x86_64 -machine q35,accel=tcg -display none -nodefaults \\
    -S -qmp stdio | tr ',' '\\n' | grep -c x-dedup
qemu-img info --output=json /dev/null >/dev/null
qemu-system-x86_64 -version | head -n 1''').splitlines()
    host.check(int(found[0]) > 5, 'QEMU has %s of our commands' % found[0])
    return found[-1]


def _lacking(paths, wanted):
    """Check that packages have all files of Python packages but tests."""
    have = ''.join(subprocess.run(
        ['dpkg-deb', '--contents', path], check=True, capture_output=True,
        text=True).stdout for path in paths)
    lacking = [name for name in wanted if '/tests/' not in name
               and '/dist-packages/%s\n' % name not in have]
    host.check(not lacking, 'no package has ' + ', '.join(lacking[:6]))
    return '%d files' % len(wanted)


def lint(checks, log):
    """Check that lintian of the suite finds no fault in what was built."""
    suite = build.SUITES['nova-dedup-migrate']
    new = packages(suite)
    with chroot.system(suite, (*build.TOOLS, *build.OURS), log) as system:
        for path in new.values():
            shutil.copy(path, system.path('/root'))
        listed = subprocess.run(
            ['git', 'ls-files', *_MODULES], cwd=source.TOP, check=True,
            capture_output=True, text=True).stdout.splitlines()
        checks.row('files of our modules', 'all but tests', _lacking,
                   new.values(), listed)
        checks.row('lintian', 'no errors, no warnings', system.run,
                   'lintian', 'cd /root && %s *.deb' % build.LINTIAN)
