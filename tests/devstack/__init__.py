# SPDX-License-Identifier: Apache-2.0
"""Runs the DevStack plugin against functions of DevStack's interface."""

import dataclasses
from pathlib import Path
import subprocess

import tests

PHASES = tests.TOP / 'tests' / 'devstack' / 'phases'
AGENT = ('ExecStart=/opt/stack/data/venv/bin/nova-dedup-migrate-agent '
         '--config-file /etc/nova/nova-cpu.conf\nGroup=libvirt\n')


@dataclasses.dataclass(frozen=True)
class Case:
    """A host, and what it is like after stack.sh.

    :ivar services: those that local.conf enables
    :ivar variables: NAME=VALUE; %(prefix)s is the directory of a QEMU
    :ivar present: (path of a file on the host, text that it has)
    :ivar absent: paths
    :ivar calls: lines that the functions of the interface logged
    :ivar error: text of the error, if stack.sh has to fail before it
        installs anything
    """

    name: str
    services: str
    variables: tuple = ()
    present: tuple = ()
    absent: tuple = ()
    calls: tuple = ()
    error: str = ''


_DRIVER = ('/etc/nova/nova.conf',
           'compute_driver = dedup_migrate.DedupMigrateLibvirtDriver')
_HELPER = ('/etc/nova/nova.conf',
           'helper_command = sudo /opt/stack/data/venv/bin/privsep-helper '
           '--config-file /etc/nova/nova-cpu.conf')
_STOCK = ('/etc/nova/nova.conf', 'compute_driver = libvirt.LibvirtDriver')
_DROP_IN = ('/etc/systemd/system/libvirtd.service.d/'
            'nova-dedup-migrate.conf')
_PANELS = 'horizon/openstack_dashboard/local/enabled/'
_RULES = '/etc/apparmor.d/local/abstractions/libvirt-qemu'
_CONTROLLER = '/etc/nova-dedup-migrate/nova-dedup-migrate.conf'
_ENGINE = ('ExecStart=/opt/stack/data/venv/bin/nova-dedup-migrate-engine '
           '--config-file ' + _CONTROLLER)
_ASSIST = ('ExecStart=/opt/stack/data/venv/bin/cinder-backup-assist '
           '--config-file /etc/cinder/cinder.conf')
_TEMPEST = 'tempest/etc/tempest.conf'
_CELL = 'transport_url = rabbit://stackrabbit:secret@127.0.0.1:5672/'

CASES = (
    Case('one node with a built QEMU', 'n-cpu,n-api,c-api,c-vol,tempest',
         ('DEDUP_MIGRATE_QEMU=%(prefix)s', 'DEDUP_MIGRATE_COMPUTE_HOSTS=2'),
         present=(
             _DRIVER, _HELPER, ('units/dedup-migrate-agent', AGENT),
             (_DROP_IN, 'Environment=PATH=/opt/nova-dedup-migrate/bin:'),
             (_RULES, '/opt/nova-dedup-migrate/share/qemu/** r,'),
             ('/etc/apparmor.d/local/usr.sbin.libvirtd',
              '# a rule of the operator'),
             ('/opt/nova-dedup-migrate/bin/qemu-system-x86_64', '#!'),
             (_TEMPEST, 'min_compute_nodes = 2'),
             (_TEMPEST, '\nlive_migration = True'),
             (_TEMPEST, 'block_migration_for_live_migration = True'),
             (_TEMPEST, 'live_migrate_back_and_forth = True'),
             (_TEMPEST, 'volume_backed_live_migration = True'),
             (_TEMPEST, '\ndedup_migrate = True'),
             (_TEMPEST, '\ncontroller = True'),
             (_TEMPEST, '\nshared_volumes = True')),
         calls=('restart_service libvirtd',)),
    Case('compute host with packages', 'n-cpu',
         ('HOST_ID=ubuntu',
          'DEDUP_MIGRATE_APT_REPOSITORY=[trusted=yes] file:/srv/repo ./',
          'DEDUP_MIGRATE_STRATEGY=page_cache'),
         present=(
             _DRIVER, ('units/dedup-migrate-agent', AGENT),
             ('/etc/nova/nova.conf', 'strategy = page_cache'),
             ('/etc/apt/sources.list.d/nova-dedup-migrate.list',
              'deb [trusted=yes] file:/srv/repo ./')),
         absent=(_DROP_IN, _RULES,
                 _PANELS + '_2170_dedup_migrate_migrations.py'),
         calls=('install_package qemu-system-x86 qemu-system-common '
                'qemu-utils qemu-block-extra',)),
    Case('controller without nova-compute', 'n-api,tempest,horizon',
         ('DEDUP_MIGRATE_COMPUTE_HOSTS=2',),
         present=(_STOCK,
                  ('units/dedup-migrate-engine', _ENGINE),
                  ('units/dedup-migrate-api', 'bin/uwsgi '),
                  ('/etc/nova-dedup-migrate/api-uwsgi.ini',
                   'http-socket = 0.0.0.0:8785'),
                  (_CONTROLLER, _CELL + 'nova_cell1'),
                  (_CONTROLLER, '[openstack]\nusername = dedup-migrate'),
                  (_CONTROLLER, 'root:secret@127.0.0.1/dedup_migrate?'),
                  (_PANELS + '_2170_dedup_migrate_migrations.py',
                   'ADD_PANEL'),
                  (_PANELS + '_2172_dedup_migrate_hosts.py', 'ADD_PANEL'),
                  (_TEMPEST, 'min_compute_nodes = 2'),
                  (_TEMPEST, 'volume_backed_live_migration = False'),
                  (_TEMPEST, '\ncontroller = True'),
                  (_TEMPEST, '\nshared_volumes = False')),
         absent=(_DROP_IN, _RULES, 'units/dedup-migrate-agent',
                 'units/cinder-backup-assist'),
         calls=('create_service_user dedup-migrate admin',
                'get_or_create_endpoint 6f1e RegionOne '
                'http://192.0.2.10:8785',
                'recreate_database dedup_migrate',
                '/opt/stack/data/venv/bin/nova-dedup-migrate-manage '
                '--config-file %s db sync' % _CONTROLLER,
                'wait_for_service http://192.0.2.10:8785/healthcheck')),
    Case('Tempest without a controller, as variables have it',
         'c-api,c-vol,tempest',
         ('DEDUP_MIGRATE_COMPUTE_HOSTS=2',
          'DEDUP_MIGRATE_SHARED_VOLUMES=False',
          'USE_BLOCK_MIGRATION_FOR_LIVE_MIGRATION=False',
          'LIVE_MIGRATE_BACK_AND_FORTH=False'),
         present=((_TEMPEST, '\ncontroller = False'),
                  (_TEMPEST, '\nshared_volumes = False'),
                  (_TEMPEST, 'block_migration_for_live_migration = False'),
                  (_TEMPEST, 'live_migrate_back_and_forth = False'))),
    Case('one node with volumes and Tempest',
         'n-cpu,n-api,c-api,c-vol,tempest',
         ('DEDUP_MIGRATE_QEMU=none',),
         present=((_TEMPEST, 'min_compute_nodes = 1'),
                  (_TEMPEST, '\nshared_volumes = False'))),
    Case('one node with backups', 'n-cpu,c-bak', ('DEDUP_MIGRATE_QEMU=none',),
         present=(('units/cinder-backup-assist', _ASSIST),
                  ('/etc/cinder/cinder.conf', _CELL),
                  ('/etc/cinder/cinder.conf',
                   '\nca_certificate = '),
                  ('/etc/nova/nova.conf', '\nbackup_certificate_key = '),
                  ('/etc/nova/nova.conf', 'backup_' + _CELL)),
         absent=('units/dedup-migrate-api', _CONTROLLER),
         calls=('pip_install zstandard>=0.22.0',)),
    Case('compute host with certificates', 'n-cpu',
         ('DEDUP_MIGRATE_QEMU=none', 'DEDUP_MIGRATE_CERTIFICATES=/srv/tls'),
         present=(('/etc/nova/nova.conf',
                   'backup_certificate = /srv/tls/host.pem'),),
         absent=('units/cinder-backup-assist',)),
    Case('a QEMU that is none', 'n-cpu', ('DEDUP_MIGRATE_QEMU=/nowhere',),
         error='DEDUP_MIGRATE_QEMU is /nowhere, which has no '
               'bin/qemu-system-x86_64'),
    Case('an unknown source of QEMU', 'n-cpu', ('DEDUP_MIGRATE_QEMU=snap',),
         error='set it to package, build, none or a directory'),
    Case('a build on another distribution', 'n-cpu', ('HOST_ID=ubuntu',),
         error='this host runs ubuntu. Set one of these: '
               'DEDUP_MIGRATE_QEMU_SOURCE'),
    Case('a build from no source', 'n-cpu',
         ('HOST_ID=ubuntu', 'DEDUP_MIGRATE_QEMU_SOURCE=/nowhere'),
         error='DEDUP_MIGRATE_QEMU_SOURCE is /nowhere, which has no file '
               'VERSION'),
    Case('packages without a repository', 'n-cpu',
         ('DEDUP_MIGRATE_QEMU=package',),
         error='needs DEDUP_MIGRATE_APT_REPOSITORY'),
    Case('packages on another distribution', 'n-cpu',
         ('DEDUP_MIGRATE_QEMU=package', 'DISTRO_FAMILY=redhat'),
         error='DEDUP_MIGRATE_QEMU=package needs Debian'),
)


def why_not():
    """Return why no mount namespace can be made here, or None."""
    done = subprocess.run(['unshare', '--mount', 'true'], check=False,
                          capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else None


def _installed(state, path):
    """Return the path in the snapshot of what a host has after stack.sh."""
    for top in ('/etc/nova', '/etc/cinder', '/etc/nova-dedup-migrate',
                '/etc/systemd/system', '/etc/apparmor.d',
                '/etc/apt/sources.list.d', '/opt', 'units', 'tempest',
                'horizon'):
        if path == top or path.startswith(top + '/'):
            place = {'units': state / 'units',
                     'tempest': state / 'dest/tempest',
                     'horizon': state / 'dest/horizon'}.get(top, top)
            return Path(state, 'first', str(place).replace('/', '-')
                        ) / path[len(top) + 1:]
    raise ValueError(path)


def run(case, directory):
    """Run a case.

    :param directory: a new one
    :returns: a sentence about what is wrong, or None
    """
    prefix, state = Path(directory, 'prefix'), Path(directory, 'state')
    (prefix / 'bin').mkdir(parents=True)
    qemu = prefix / 'bin' / 'qemu-system-x86_64'
    qemu.write_text('#!/bin/sh\n')
    qemu.chmod(0o755)
    done = subprocess.run(
        ['unshare', '--mount', str(PHASES), str(state), case.services,
         *(variable % {'prefix': prefix} for variable in case.variables)],
        check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=300)
    calls = (state / 'calls').read_text().splitlines()
    if case.error:
        if not done.returncode or case.error not in done.stdout:
            return 'it did not fail with "%s": %s' % (case.error, done.stdout)
        if any(call.startswith('setup_develop') for call in calls):
            return 'it failed when it had installed the package'
        return None
    if done.returncode:
        return done.stdout.strip()
    for path, text in case.present:
        place = _installed(state, path)
        if not place.exists() or text not in place.read_text():
            return '%s does not have: %s' % (path, text)
    for path in case.absent:
        if _installed(state, path).exists():
            return '%s is there' % path
    for call in case.calls:
        if call not in calls:
            return 'the plugin did not call: %s' % call
    return None
