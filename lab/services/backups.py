# SPDX-License-Identifier: Apache-2.0
"""cinder-backup with the posix driver, and cinder-backup-assist.

The store is on a NAS of its own, which the hosts backup1 and backup2 have
mounted, and no other: compute hosts reach it through the two daemons alone.
"""

import functools

from lab.services import cinder
from lab.services import gluster
from lab.services import tls
from lab.services.mariadb import listens
from lab.steps import Step

#: As hosts see them.
STORE = '/srv/backups'
TLS = '/etc/cinder/assist'
COMPUTE_TLS = '/etc/nova/assist'
ASSIST = 'cinder-backup-assist'
BACKUP = 'cinder-backup'
PORT = 8797


def prepare(cloud, host):
    """Give a host a place for the store, and its certificate."""
    host.private(STORE)
    tls.issue(cloud, host, host.address, TLS)


def steps(cloud):
    nas, = cloud.settings.backup_nases
    found = [Step('backup store of %s' % name,
                  functools.partial(_mount, cloud, name, nas), (nas,))
             for name in cloud.settings.backup_hosts]
    found += [Step('cinder-backup of %s' % name,
                   functools.partial(_backup, cloud, name),
                   ('volumes', 'backup store of %s' % name))
              for name in cloud.settings.backup_hosts]
    found += [Step('cinder-backup-assist of %s' % name,
                   functools.partial(_assist, cloud, name),
                   ('databases', 'rabbitmq', 'python',
                    'backup store of %s' % name))
              for name in cloud.settings.backup_hosts]
    return found


def _mount(cloud, name, nas):
    gluster.mount(cloud, cloud.host(name), STORE, nas)


def _backup(cloud, name):
    host = cloud.host(name)
    cinder.configure(cloud, host)
    cinder.start(cloud, host, BACKUP)
    cloud.wait(host, BACKUP, lambda: (BACKUP, host.name)
               in cinder.services_up(cloud), 120)


def _assist(cloud, name):
    cinder.configure(cloud, cloud.host(name))
    start_assist(cloud, name)


def start_assist(cloud, name):
    """Start cinder-backup-assist of a host, unless it runs."""
    host = cloud.host(name)
    cloud.start(host, ASSIST,
                [cloud.python, '-m', 'cinder_backup_assist.cmd'])
    cloud.wait(host, ASSIST,
               functools.partial(listens, host.address, PORT), 60)


def stop_assist(cloud, name):
    """End it."""
    process = cloud.host(name).process(ASSIST)
    if process is not None:
        process.end(20)
