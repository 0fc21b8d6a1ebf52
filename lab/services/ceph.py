# SPDX-License-Identifier: Apache-2.0
"""A Ceph cluster of one monitor, one manager and one OSD on a host."""

import functools
import pathlib
import shutil
import sys
import uuid

from lab import errors
from lab.steps import Step

DIRECTORYS = ('/etc/ceph', '/var/lib/ceph', '/run/ceph')
CLIENT_DIRECTORYS = ('/etc/ceph',)
POOLS = ('images', 'vms', 'volumes')
_MON = '/var/lib/ceph/mon/ceph-a'
_OSD = '/var/lib/ceph/osd/ceph-0'
#: Debian's bindings, which are not on PyPI.
_BINDINGS = pathlib.Path('/usr/lib/python3/dist-packages')


def steps(cloud):
    found = [
        Step('ceph', functools.partial(_start, cloud), ('hosts',)),
        Step('ceph bindings', functools.partial(_bindings, cloud),
             ('python',)),
    ]
    found += [Step('storage of %s' % name,
                   functools.partial(_client, cloud, name),
                   ('ceph', 'ceph bindings'))
              for name in ('control', *cloud.settings.hosts)]
    return found


def _fsid(cloud):
    return uuid.uuid5(uuid.NAMESPACE_OID, cloud.host('ceph').netns)


def _configure(cloud, host):
    cloud.configure(host, '/etc/ceph/ceph.conf', 'ceph.conf',
                    fsid=_fsid(cloud))


def _client(cloud, name):
    _configure(cloud, cloud.host(name))


def _bindings(cloud):
    # once: processes that have loaded them would not survive new ones
    cloud.once('ceph bindings', functools.partial(_copy_bindings, cloud))


def _copy_bindings(cloud):
    target = cloud.python.parents[1] / 'lib' / (
        'python%d.%d' % sys.version_info[:2]) / 'site-packages'
    tag = 'cpython-%d%d-*.so' % sys.version_info[:2]
    for name in ('rados', 'rbd'):
        files = list(_BINDINGS.glob('%s.%s' % (name, tag)))
        if not files:
            raise errors.LabError(
                'python3-%s is not made for Python %d.%d' % (
                    name, *sys.version_info[:2]))
        shutil.copy(files[0], target)


def _run(cloud, *argv):
    cloud.execute(cloud.host('ceph'), 'ceph-setup', argv, 90)


def _start(cloud):
    host = cloud.host('ceph')
    _configure(cloud, host)
    cloud.once('ceph monitor', functools.partial(_make_monitor, cloud))
    cloud.start(host, 'ceph-mon', ['ceph-mon', '-i', 'a', '--foreground'])
    cloud.wait(host, 'ceph-mon', functools.partial(_answers, host), 60)
    cloud.start(host, 'ceph-mgr', ['ceph-mgr', '-i', 'a', '--foreground'])
    cloud.once('ceph disk', functools.partial(_make_disk, cloud))
    cloud.start(host, 'ceph-osd', ['ceph-osd', '-i', '0', '--foreground'])
    cloud.once('ceph pools', functools.partial(_make_pools, cloud))


def _answers(host):
    return host.run(['ceph', '--connect-timeout', '5', 'mon', 'stat'],
                    check=False).returncode == 0


def _make_monitor(cloud):
    host = cloud.host('ceph')
    (host.directory / _MON.lstrip('/')).mkdir(parents=True, exist_ok=True)
    _run(cloud, 'monmaptool', '--create', '--clobber', '--fsid',
         _fsid(cloud), '--addv', 'a', '[v2:%s:3300,v1:%s:6789]' % (
             host.address, host.address), '/var/lib/ceph/monmap')
    _run(cloud, 'ceph-mon', '--mkfs', '-i', 'a', '--monmap',
         '/var/lib/ceph/monmap')


def _make_disk(cloud):
    host = cloud.host('ceph')
    directory = host.directory / _OSD.lstrip('/')
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    name = str(uuid.uuid4())
    _run(cloud, 'ceph', 'osd', 'new', name, '0')
    _run(cloud, 'ceph-osd', '-i', '0', '--mkfs', '--osd-uuid', name)


def _make_pools(cloud):
    for name in POOLS:
        _run(cloud, 'ceph', 'osd', 'pool', 'create', name, '8')
        _run(cloud, 'rbd', 'pool', 'init', name)
