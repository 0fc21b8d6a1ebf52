# SPDX-License-Identifier: Apache-2.0
"""The hosts of a lab, their networks and the directories they have alone.

=========== ============================== =========================
host        networks                       runs
=========== ============================== =========================
control     management                     APIs, database, queue
computeN    all                            libvirtd, nova-compute
nas, nas2   storage                        GlusterFS
nas3        storage                        GlusterFS of the backup store
backupN     management, storage            cinder-backup, its assist
ceph        storage                        a Ceph cluster of one
=========== ============================== =========================
"""

from lab.cloud import INSTANCES
from lab.cloud import NETWORKS
from lab.hosts import far
from lab.hosts import lab as labs
from lab.services import backups
from lab.services import ceph
from lab.services import cinder
from lab.services import controller
from lab.services import glance
from lab.services import gluster
from lab.services import instance_network
from lab.services import keystone
from lab.services import mariadb
from lab.services import neutron
from lab.services import nova
from lab.services import placement
from lab.services import rabbitmq
from lab.services import ssh
from lab.services import tls
from lab.services.libvirtd import Libvirtd

#: The daemon of delay().
FAR = 'far'
_CONTROL = (mariadb, rabbitmq, keystone, placement, glance, nova, neutron,
            cinder, controller)


def make(cloud):
    """Make the hosts; what is left of an earlier lab goes first."""
    cloud.lab = labs.Lab(cloud.name, cloud.directory,
                         networks=NETWORKS).create()
    settings = cloud.settings
    control = ['management']
    if settings.has_cinder:
        # Cinder and Glance open volumes and images themselves
        control.append('storage')
    host = cloud.lab.add_host('control', control)
    for service in _CONTROL:
        _private(host, service.DIRECTORYS)
    for name in (*settings.nases, *settings.backup_nases):
        host = cloud.lab.add_host(name, ['storage'])
        _private(host, gluster.DIRECTORYS)
    if settings.has_ceph:
        host = cloud.lab.add_host('ceph', ['storage'])
        _private(host, ceph.DIRECTORYS)
    for name in settings.hosts:
        host = cloud.lab.add_host(name)
        host.link(INSTANCES).add_bridge(instance_network.BRIDGE)
        if settings.migration_delay:
            far.lengthen(host, host.link('migration'))
        _private(host, nova.DIRECTORYS + ssh.DIRECTORYS)
        libvirtd(cloud, name).prepare()
        if settings.tls:
            tls.issue(cloud, host, host.link('migration').address)
        if settings.builds_disks:
            tls.issue_channel(cloud, host)
        if settings.backups:
            tls.issue(cloud, host, host.address, backups.COMPUTE_TLS)
    for name in settings.backup_hosts:
        host = cloud.lab.add_host(name, ['management', 'storage'])
        _private(host, cinder.DIRECTORYS)
        backups.prepare(cloud, host)
    if settings.has_nas:
        for name in ('control', *settings.backup_hosts, *settings.hosts):
            _private(cloud.host(name), gluster.CLIENT_DIRECTORYS)
            if settings.has_cinder:
                cinder.mount_helper(cloud, cloud.host(name))
    if settings.has_ceph:
        for name in ('control', *settings.hosts):
            _private(cloud.host(name), ceph.CLIENT_DIRECTORYS)
    return ', '.join(cloud.host_names)


def _private(host, directories):
    for directory in directories:
        host.private(directory)


def libvirtd(cloud, name):
    """The Libvirtd of a compute host."""
    kind = cloud.settings.qemus[cloud.settings.hosts.index(name)]
    host = cloud.host(name)
    return Libvirtd(host, cloud.qemu(kind, host), 'migration',
                    tls.DIRECTORY if cloud.settings.tls else None)


def limit(cloud):
    """Set the rates of the links as the settings have them."""
    settings = cloud.settings
    for host in cloud.computes:
        rate = settings.migration_rate or None
        host.link('migration').limit(send=rate, receive=rate)
    for name in (*settings.nases, *settings.backup_nases,
                 *(('ceph',) * settings.has_ceph)):
        rate = settings.storage_rate or None
        cloud.host(name).link('storage').limit(send=rate, receive=rate)
    return 'migration %s, storage %s' % (
        text(settings.migration_rate, settings.migration_delay),
        text(settings.storage_rate))


def text(rate, delay=0.0):
    """Bytes per second as Mbit/s, and ms of a round trip if there are any."""
    return ('%g Mbit/s' % (rate * 8 / 1e6) if rate else 'not limited') + (
        ', %g ms' % delay if delay else '')


def delay(cloud, name):
    """Have what a compute host sends to others arrive later.

    Each host delays what it sends by half a round trip.
    """
    host = cloud.host(name)
    link = host.link('migration')
    cloud.start(host, FAR, far.command(
        cloud.python, link, cloud.settings.migration_delay / 2000))
    cloud.wait(host, FAR, lambda: far.is_served(host, link))
    return '%g ms' % cloud.settings.migration_delay
