# SPDX-License-Identifier: Apache-2.0
"""Nova: API, conductor and scheduler; nova-compute on its hosts."""

import functools
import shutil
import signal

from lab import client
from lab.services import tls
from lab.services import wsgi
from lab.steps import Step

NAME = 'nova'
DIRECTORYS = ('/etc/nova', '/var/lib/nova')
DRIVERS = {'dedup': 'dedup_migrate.DedupMigrateLibvirtDriver',
           'stock': 'libvirt.LibvirtDriver'}
AGENT = 'nova-dedup-migrate-agent'
_DAEMONS = ('nova-conductor', 'nova-scheduler')


def steps(cloud):
    found = [
        Step('nova-api', functools.partial(_api, cloud),
             ('databases', 'users and endpoints', 'rabbitmq')),
        Step('nova-conductor, nova-scheduler',
             functools.partial(_daemons, cloud),
             ('databases', 'users and endpoints', 'rabbitmq')),
    ]
    found += [
        Step('nova-compute of %s' % host,
             functools.partial(_compute, cloud, host, driver),
             ('nova-conductor, nova-scheduler', 'placement',
              'libvirtd of %s' % host)
             + (('storage of %s' % host,) if cloud.settings.has_nas
                or cloud.settings.has_ceph else ()))
        for host, driver in zip(cloud.settings.hosts,
                                cloud.settings.drivers, strict=True)]
    found += [
        Step('agent of %s' % host, functools.partial(start_agent, cloud, host),
             ('nova-compute of %s' % host, 'rabbitmq'))
        for host, driver in zip(cloud.settings.hosts,
                                cloud.settings.drivers, strict=True)
        if driver == 'dedup']
    found.append(Step(
        'compute hosts', functools.partial(_discover, cloud),
        ('nova-api', *(step.name for step in found[2:]))))
    return found


def configure(cloud):
    host = cloud.control
    _configure(cloud, host)
    shutil.copy(cloud.data('nova/api-paste.ini'),
                host.directory / 'etc/nova')
    (host.directory / 'var/lib/nova/locks').mkdir(exist_ok=True)


def _configure(cloud, host, driver=None, enabled=True, at_once=0,
               connections=0):
    """Write nova.conf of a host.

    :param driver: of DRIVERS, for a compute host
    :param enabled: [dedup_migrate] enabled
    :param at_once: max_concurrent_live_migrations, 0: Nova's default
    :param connections: live_migration_parallel_connections, 0: Nova's
        default
    """
    cloud.configure(host, '/etc/nova/nova.conf', 'nova.conf',
                    driver=DRIVERS.get(driver), enabled=enabled,
                    at_once=at_once, connections=connections,
                    channel=tls.CHANNEL_DIRECTORY,
                    qemu=_qemu(cloud, host.name) if driver else None)


def _qemu(cloud, name):
    """Return the directory of the QEMU of a compute host."""
    return cloud.qemu(
        cloud.settings.qemus[cloud.settings.hosts.index(name)],
        cloud.host(name))


def _manage(cloud, *words):
    cloud.execute(cloud.control, 'nova-manage',
                  [*cloud.script('nova-manage'), *words])


def schema(cloud):
    _manage(cloud, 'api_db', 'sync')
    cloud.once('nova cells', functools.partial(_cells, cloud))
    _manage(cloud, 'db', 'sync')


def _cells(cloud):
    # templates that Nova fills with what is in nova.conf
    database = '{scheme}://{username}:{password}@{hostname}/%s?{query}'
    queue = '{scheme}://{username}:{password}@{hostname}:{port}/'
    _manage(cloud, 'cell_v2', 'map_cell0', '--database_connection',
            database % 'nova_cell0')
    _manage(cloud, 'cell_v2', 'create_cell', '--name', 'cell1',
            '--database_connection', database % 'nova_cell1',
            '--transport-url', queue)


def _api(cloud):
    return wsgi.start(cloud, 'nova-api', 'compute',
                      'nova.wsgi.osapi_compute')


def _up(cloud):
    """(program, host) of the services that Nova believes to be up."""
    compute = client.connect(cloud).compute
    return {(each.binary, each.host) for each in compute.services()
            if each.state == 'up'}


def _daemons(cloud):
    for name in _DAEMONS:
        cloud.start(cloud.control, name, cloud.script(name))


def _compute(cloud, name, driver):
    host = cloud.host(name)
    _configure(cloud, host, driver)
    for directory in ('locks', 'instances'):
        (host.directory / 'var/lib/nova' / directory).mkdir(exist_ok=True)
    start_compute(cloud, name)
    return 'started, driver %s' % DRIVERS[driver]


def configure_compute(cloud, name):
    """Write nova.conf of a compute host, as the lab was made."""
    _configure(cloud, cloud.host(name), cloud.settings.drivers[
        cloud.settings.hosts.index(name)])


def start_compute(cloud, name):
    """Start nova-compute of a host, unless it runs."""
    # qemu-img has to be the one of the host's QEMU
    cloud.start(
        cloud.host(name), 'nova-compute',
        cloud.script('nova-compute', cloud.host(name)),
        env={'PATH': '%s:/usr/sbin:/usr/bin:/sbin:/bin'
             % _qemu(cloud, name)})


def restart_computes(cloud, driver=None, **values):
    """Start nova-compute of all hosts with another configuration.

    :param driver: of DRIVERS; None: that of each host as the lab was made
    :param values: see _configure
    :raises LabError: Nova does not see them after four minutes
    """
    for host, usual in zip(cloud.computes, cloud.settings.drivers,
                           strict=True):
        _configure(cloud, host, driver or usual, **values)
        process = host.process('nova-compute')
        if process is not None:
            process.send(signal.SIGTERM)
    for host in cloud.computes:
        process = host.process('nova-compute')
        if process is not None:
            process.end(20)
    before = seen(cloud)
    for host in cloud.computes:
        start_compute(cloud, host.name)

    def ready():
        for host in cloud.computes:
            cloud.check(host, 'nova-compute')
        now = seen(cloud)
        return computes_are_up(cloud) and all(
            now[name] != seen for name, seen in before.items())

    cloud.wait(cloud.control, 'nova-conductor', ready, 240)


def seen(cloud):
    """When Nova heard of each nova-compute last."""
    return {each.host: each.updated_at
            for each in client.connect(cloud).compute.services()
            if each.binary == 'nova-compute'}


def start_agent(cloud, name):
    """Start nova-dedup-migrate-agent of a host, unless it runs."""
    host = cloud.host(name)
    cloud.start(host, AGENT, [
        cloud.release(host, AGENT).python, '-m',
        'nova_dedup_migrate.cmd.agent'])


def computes_are_up(cloud):
    """Whether Nova believes that it can use all compute hosts.

    It disables those that it has lost libvirt of, for up to a minute.
    """
    return {each.host
            for each in client.connect(cloud).compute.services()
            if each.binary == 'nova-compute' and each.state == 'up'
            and each.status == 'enabled'} == set(cloud.settings.hosts)


def _discover(cloud):
    wanted = {(name, 'control') for name in _DAEMONS}
    wanted |= {('nova-compute', name) for name in cloud.settings.hosts}

    def ready():
        for host in cloud.computes:
            cloud.check(host, 'nova-compute')
            cloud.check(host, AGENT)
        return wanted <= _up(cloud)

    cloud.wait(cloud.control, 'nova-conductor', ready, 240)
    cloud.once('hosts', lambda: _manage(cloud, 'cell_v2', 'discover_hosts'))
    return 'are up'
