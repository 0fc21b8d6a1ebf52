# SPDX-License-Identifier: Apache-2.0
"""Each NAS: a GlusterFS volume with one brick, on a host of its own.

GlusterFS because it works in user space, with O_DIRECT and locks, and
because libvirt knows it for shared storage.
"""

import functools

from lab import errors
from lab.services.mariadb import listens
from lab.steps import Step

#: Directorys of the NAS.
DIRECTORYS = ('/var/lib/glusterd', '/var/log/glusterfs', '/run/gluster',
           '/srv/nas')
#: Directorys of a host that mounts it.
CLIENT_DIRECTORYS = ('/var/log/glusterfs', '/run/gluster')
VOLUME = 'nas'
_BRICK = '/srv/nas/brick'
#: In a directory of the NAS's own, or two labs would share the usual one.
_SOCKET = '/run/gluster/glusterd.socket'
_PORT = 24007
# No cache but the guest's own, none that hides what the other host wrote.
_OPTIONS = {
    'performance.quick-read': 'off', 'performance.read-ahead': 'off',
    'performance.io-cache': 'off', 'performance.stat-prefetch': 'off',
    'performance.write-behind': 'off',
    'performance.strict-o-direct': 'on',
    'network.remote-dio': 'disable', 'network.ping-timeout': '10',
    # Can make reads fail (fail_reads); does not by itself.  Not writes:
    # some of the errors it invents would be ENOSPC, and QEMU would pause
    # the guest.
    'debug.error-gen': 'posix', 'debug.error-fops': 'read',
    'debug.error-failure': '0',
}


def steps(cloud):
    return [Step(name, functools.partial(_start, cloud, name), ('hosts',))
            for name in (*cloud.settings.nases,
                         *cloud.settings.backup_nases)]


def _start(cloud, name):
    host = cloud.host(name)
    cloud.start(host, 'glusterd', [
        'glusterd', '--no-daemon',
        '--xlator-option=*.glusterd-sockfile=' + _SOCKET])
    cloud.wait(host, 'glusterd',
               functools.partial(listens, host.address, _PORT))
    cloud.once(name, functools.partial(_create, cloud, host))
    start_volume(cloud, host)


def _gluster(cloud, host, *words):
    cloud.execute(host, 'gluster', [
        'gluster', '--mode=script', '--glusterd-sock=' + _SOCKET, 'volume',
        *words], 120)


def _create(cloud, host):
    (host.directory / _BRICK.lstrip('/')).mkdir(exist_ok=True)
    _gluster(cloud, host, 'create', VOLUME, 'transport', 'tcp',
             '%s:%s' % (host.name, _BRICK), 'force')
    _gluster(cloud, host, 'set', VOLUME,
             *(word for option in _OPTIONS.items() for word in option))


def start_volume(cloud, host):
    """Have it serve files, also where the program that does was killed."""
    _gluster(cloud, host, 'start', VOLUME, 'force')


def fail_reads(cloud, host, wanted):
    """Have it answer all that is read with errors, or no longer.

    They are not EIO but what comes to its mind: EBADF, EFAULT, EINVAL ...
    """
    _gluster(cloud, host, 'set', VOLUME, 'debug.error-failure',
             '100' if wanted else '0')


def mount(cloud, host, directory, nas='nas'):
    """Mount a NAS over a directory of a host, unless it is.

    :raises LabError: it cannot be mounted
    """
    name = 'glusterfs' + str(directory).replace('/', '-')
    if is_mounted(host, directory):
        return
    cloud.start(host, name, [
        'glusterfs', '--no-daemon', '--process-name', 'fuse',
        '--volfile-server=' + nas, '--volfile-id=' + VOLUME,
        '--log-file=/var/log/glusterfs/%s.log' % name, directory])
    try:
        cloud.wait(host, name,
                   functools.partial(is_mounted, host, directory), 30)
    except errors.LabError as error:
        error.log = host.directory / ('var/log/glusterfs/%s.log' % name)
        raise


def is_mounted(host, directory):
    """Whether a NAS is mounted there and answers."""
    done = host.run(['stat', '--file-system', '--format=%T', directory],
                    timeout=20, check=False)
    return done.returncode == 0 and 'fuse' in done.stdout
