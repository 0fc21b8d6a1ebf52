# SPDX-License-Identifier: Apache-2.0
"""MariaDB's daemon."""

import functools
import socket

DIRECTORYS = ('/var/lib/mysql', '/etc/mysql')
DATABASES = ('keystone', 'placement', 'glance', 'nova_api', 'nova_cell0',
             'nova_cell1', 'neutron', 'cinder')
PORT = 3306


def directory(cloud):
    """Path of its directory as the machine sees it."""
    return cloud.control.directory / 'var/lib/mysql'


def create(cloud):
    """Fill its directory."""
    cloud.execute(
        cloud.control, 'mariadb-install-db',
        ['mariadb-install-db', '--no-defaults', '--user=root',
         '--datadir=/var/lib/mysql', '--skip-test-db',
         '--auth-root-authentication-method=normal'])


def start(cloud):
    """Start it, unless it runs; return when it answers."""
    host = cloud.control
    cloud.configure(host, '/etc/mysql/lab.sql', 'mariadb.sql',
                    databases=DATABASES)
    # Durability is not worth the flushes here.
    cloud.start(host, 'mariadb', [
        'mariadbd', '--no-defaults', '--user=root',
        '--datadir=/var/lib/mysql', '--socket=/var/lib/mysql/socket',
        '--bind-address=' + host.address, '--port=%d' % PORT,
        '--init-file=/etc/mysql/lab.sql', '--skip-name-resolve',
        '--max-connections=500', '--character-set-server=utf8',
        '--innodb-flush-log-at-trx-commit=0', '--innodb-doublewrite=0',
        '--innodb-log-file-size=32M', '--innodb-buffer-pool-size=64M',
        '--performance-schema=OFF'])
    cloud.wait(host, 'mariadb',
               functools.partial(listens, host.address, PORT))


def listens(address, port):
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection((address, port), 5).close()
    except OSError:
        return False
    return True
