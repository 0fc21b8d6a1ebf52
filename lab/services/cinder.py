# SPDX-License-Identifier: Apache-2.0
"""Cinder, with volumes on the NAS or in Ceph.

On the NAS it is the NFS driver, with a mount.nfs that mounts GlusterFS; if
there are backups, that of lab.services.cinder_driver.
"""

import functools
import pathlib
import shutil

from lab import client
from lab.services import wsgi
from lab.steps import Step

NAME = 'cinder'
DIRECTORYS = ('/etc/cinder', '/var/lib/cinder')
#: Where mount(8) looks for its helpers, in this order.
_MOUNT = pathlib.Path('/sbin/mount.nfs')
_MORE_MOUNTS = '/sbin/fs.d'


def steps(cloud):
    storage = (('storage of control',) if cloud.settings.has_ceph
               else cloud.settings.nases)
    return [
        Step('cinder', functools.partial(_start, cloud),
             ('databases', 'users and endpoints', 'rabbitmq')),
        Step('cinder-scheduler, cinder-volume',
             functools.partial(_daemons, cloud),
             ('databases', 'users and endpoints', 'rabbitmq', *storage)),
        Step('volumes', functools.partial(_wait, cloud),
             ('cinder', 'cinder-scheduler, cinder-volume')),
    ]


def mount_helper(cloud, host):
    """Let mount -t nfs of a host mount the NAS; once a host."""
    if _MOUNT.exists():
        cloud.configure(host, _MOUNT, 'mount.nfs')
        helper = host.directory / str(_MOUNT).lstrip('/')
        host.bind(helper, _MOUNT)
    else:
        host.private(_MORE_MOUNTS)
        cloud.configure(host, _MORE_MOUNTS + '/mount.nfs', 'mount.nfs')
        helper = host.directory / _MORE_MOUNTS.lstrip('/') / 'mount.nfs'
    helper.chmod(0o755)


def configure(cloud, host=None):
    """Write what a host of Cinder needs, by default the control host."""
    host = host or cloud.control
    directory = host.directory / 'etc/cinder'
    cloud.configure(host, '/etc/cinder/cinder.conf', 'cinder.conf')
    for name in cloud.settings.nases:
        (directory / ('shares_' + name)).write_text('%s:/nas\n' % name)
    for name in ('api-paste.ini', 'resource_filters.json',
                 'rootwrap.conf'):
        shutil.copy(cloud.data('cinder/' + name), directory)
    for name in ('locks', 'mnt', 'conversion'):
        (host.directory / 'var/lib/cinder' / name).mkdir(exist_ok=True)


def schema(cloud):
    cloud.execute(cloud.control, 'cinder-manage',
                  [*cloud.script('cinder-manage'), 'db', 'sync'])


def _start(cloud):
    return wsgi.start(cloud, 'cinder', 'volume', 'cinder.wsgi.api')


def start(cloud, host, name):
    """Start a daemon of Cinder, unless it runs."""
    # qemu-img converts images to volumes; mount.nfs is run by name, too
    cloud.start(host, name, cloud.script(name), env={
        'PATH': '%s:/usr/sbin:/usr/bin:/sbin:/bin:%s' % (
            cloud.qemu(cloud.settings.qemus[0]), _MORE_MOUNTS)})


def _daemons(cloud):
    for name in ('cinder-scheduler', 'cinder-volume'):
        start(cloud, cloud.control, name)


def _wait(cloud):
    backends = cloud.settings.nases or ('ceph',)
    wanted = {('cinder-scheduler', 'control')} | {
        ('cinder-volume', 'control@' + name) for name in backends}

    def up():
        return wanted <= services_up(cloud)

    cloud.wait(cloud.control, 'cinder-volume', up, 120)


def services_up(cloud):
    """{(program, host)} of the services that Cinder believes to be up."""
    return {(each.binary, each.host)
            for each in client.connect(cloud).block_storage.services()
            if each.state == 'up'}
