# SPDX-License-Identifier: Apache-2.0
"""Bringing a lab up: the steps of all its services."""

import functools
import subprocess

from lab import client
from lab import errors
from lab import guest
from lab import instances
from lab import steps
from lab import topology
from lab.cloud import Cloud
from lab.hosts import lab as labs
from lab.services import backups
from lab.services import ceph
from lab.services import cinder
from lab.services import controller
from lab.services import databases
from lab.services import glance
from lab.services import gluster
from lab.services import horizon
from lab.services import instance_network
from lab.services import keystone
from lab.services import memcached
from lab.services import neutron
from lab.services import nova
from lab.services import placement
from lab.services import python
from lab.services import rabbitmq
from lab.services import ssh
from lab.settings import TOP
from lab.steps import Step


def plan(cloud):
    """All steps, in an order in which they could run one by one."""
    found = [Step('hosts', functools.partial(_hosts, cloud))]
    found += python.steps(cloud)
    found.append(Step('links', lambda: topology.limit(cloud), ('hosts',)))
    if cloud.settings.has_nas:
        found += gluster.steps(cloud)
    if cloud.settings.has_ceph:
        found += ceph.steps(cloud)
    services = [keystone, placement, glance, neutron, nova]
    if cloud.settings.has_cinder:
        services.append(cinder)
    found += databases.steps(cloud, services)
    for service in (rabbitmq, memcached, keystone, placement, glance,
                    neutron):
        found += service.steps(cloud)
    for name in cloud.settings.hosts * bool(cloud.settings.migration_delay):
        found.append(Step('delay of %s' % name,
                          functools.partial(topology.delay, cloud, name),
                          ('hosts', 'python')))
    for name in cloud.settings.hosts:
        found.append(Step(
            'libvirtd of %s' % name,
            functools.partial(_libvirtd, cloud, name), ('hosts',)))
        if cloud.settings.has_nas:
            found.append(Step(
                'storage of %s' % name,
                functools.partial(_storage, cloud, name),
                cloud.settings.nases))
    if cloud.settings.has_cinder:
        found += cinder.steps(cloud)
    if cloud.settings.backups:
        found += backups.steps(cloud)
    found += nova.steps(cloud)
    if cloud.settings.controller:
        found += controller.steps(cloud)
    if cloud.settings.dashboard:
        found += horizon.steps(cloud)
    found += instance_network.steps(cloud)
    found += ssh.steps(cloud)
    found.append(Step('guest image', lambda: guest.upload(cloud),
                      ('glance',)))
    found.append(Step('flavors', lambda: instances.flavors(cloud),
                      ('nova-api',)))
    found.append(Step('openrc', functools.partial(_openrc, cloud),
                      ('hosts',)))
    return found


def up(name, directory, settings, progress):
    """Bring a lab up, or complete one that is there with these settings.

    :returns: Cloud
    :raises LabError: it cannot be brought up
    """
    reason = labs.missing()
    if reason:
        raise errors.LabError(reason)
    cloud = Cloud(name, directory, settings)
    for kind in sorted(set(settings.qemus)):
        _build_qemu(kind)
    known = settings.load(cloud.directory)
    if known == settings and cloud.is_whole():
        cloud.settings = known
        progress.say('lab: is there, looking after its services')
    else:
        if cloud.lab is not None:
            progress.say('lab: the one that is there goes first')
            cloud.lab.destroy()
        cloud.lab = None
        cloud.empty()
        settings.save(cloud.directory)
    steps.run(plan(cloud), progress)
    return cloud


def _build_qemu(kind):
    """Build a QEMU unless it is built; its progress is shown."""
    known = subprocess.run([TOP / 'qemu' / 'build', '--print-prefix', kind],
                           capture_output=True, check=False)
    if known.returncode == 0:
        # Not to wait for the build of another one.
        return
    done = subprocess.run([TOP / 'qemu' / 'build', kind], check=False,
                          stdout=subprocess.DEVNULL)
    if done.returncode:
        raise errors.LabError('the %s QEMU cannot be built' % kind)


def _hosts(cloud):
    return 'are there' if cloud.lab is not None else topology.make(cloud)


def _libvirtd(cloud, name):
    daemon = topology.libvirtd(cloud, name)
    if daemon.process is None or not daemon.process.is_alive():
        daemon.start()
    return '%s QEMU' % cloud.settings.qemus[
        cloud.settings.hosts.index(name)]


def _storage(cloud, name):
    host = cloud.host(name)
    directory = 'var/lib/nova/instances'
    if cloud.settings.profile == 'volume':
        # Nova mounts it itself, where a volume needs it
        directory = 'var/lib/nova/mnt-%s' % name
    (host.directory / directory).mkdir(exist_ok=True)
    if cloud.settings.profile == 'shared':
        gluster.mount(cloud, host, '/' + directory)


def _openrc(cloud):
    for name in ('openrc', 'clouds.yaml'):
        path = cloud.directory / name
        path.write_text(cloud.render(name))
        path.chmod(0o600)


def services(cloud):
    """Return (program, host, process alive) of all that was started."""
    found = []
    for host in cloud.lab.hosts.values():
        for name in host.started():
            process = host.process(name)
            found.append((name, host.name,
                          process is not None and process.is_alive()))
    return sorted(found)


def nova_services(cloud):
    """Nova's own list, as openstack compute service list."""
    return sorted((each.binary, each.host, each.state)
                  for each in client.connect(cloud).compute.services())
