# SPDX-License-Identifier: Apache-2.0
"""Keystone, and what the other services need in it."""

import functools

from cryptography import fernet

from lab import client
from lab.cloud import REGION
from lab.services import wsgi
from lab.steps import Step

NAME = 'keystone'
DIRECTORYS = ('/etc/keystone',)
#: User and name -> type of the service.
SERVICES = {'placement': 'placement', 'glance': 'image', 'nova': 'compute',
            'neutron': 'network', 'cinder': 'volume',
            'dedup-migrate': 'dedup-migrate'}
#: What OpenStack calls it where that differs.
_TYPES = {'volume': 'block-storage'}


def steps(cloud):
    return [
        Step('keystone', functools.partial(_start, cloud),
             ('databases', 'memcached')),
        Step('users and endpoints', functools.partial(_register, cloud),
             ('keystone',)),
    ]


def configure(cloud):
    cloud.configure(cloud.control, '/etc/keystone/keystone.conf',
                    'keystone.conf')


def _manage(cloud, *words):
    cloud.execute(cloud.control, 'keystone-manage',
                  [*cloud.script('keystone-manage'), *words])


def schema(cloud):
    _manage(cloud, 'db_sync')


def _keys(directory):
    """Make a repository of keys, as keystone-manage fernet_setup does.

    That takes seconds, as everything that loads Keystone.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    for number in ('0', '1'):
        key = directory / number
        key.touch(mode=0o600)
        key.write_bytes(fernet.Fernet.generate_key())


def _bootstrap(cloud):
    for name in ('fernet-keys', 'credential-keys'):
        _keys(cloud.control.directory / 'etc/keystone' / name)
    url = cloud.url('identity')
    _manage(cloud, 'bootstrap',
            '--bootstrap-password', cloud.settings.password,
            '--bootstrap-region-id', REGION, '--bootstrap-public-url', url,
            '--bootstrap-internal-url', url, '--bootstrap-admin-url', url)


def _start(cloud):
    cloud.once('keystone', functools.partial(_bootstrap, cloud))
    return wsgi.start(cloud, 'keystone', 'identity', 'keystone.wsgi.api')


def _register(cloud):
    cloud.once('identity', functools.partial(_create, cloud))


def _create(cloud):
    identity = client.new_connection(cloud).identity
    project = identity.find_project('service') or identity.create_project(
        name='service', domain_id='default')
    wanted = {'volume': cloud.settings.has_cinder,
              'dedup-migrate': cloud.settings.controller}
    roles = [identity.find_role(name) for name in ('admin', 'service')]
    for name, kind in SERVICES.items():
        if not wanted.get(kind, True):
            continue
        user = identity.find_user(name) or identity.create_user(
            name=name, password=cloud.settings.password,
            domain_id='default')
        for role in roles:
            identity.assign_project_role_to_user(project, user, role)
        service = identity.find_service(name) or identity.create_service(
            name=name, type=_TYPES.get(kind, kind))
        existing = {each.interface for each
                    in identity.endpoints(service_id=service.id)}
        for interface in {'public', 'internal'} - existing:
            identity.create_endpoint(
                service_id=service.id, interface=interface,
                region_id=REGION, url=cloud.url(kind))
