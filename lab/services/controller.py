# SPDX-License-Identifier: Apache-2.0
"""The controller as a small site has it: one process, with SQLite.

It is a user of the cloud like any other, with a role and an endpoint of
its own (lab/services/keystone.py).
"""

import functools
import signal

from lab.cloud import PORTS
from lab.services import wsgi
from lab.steps import Step

DIRECTORYS = ('/etc/nova-dedup-migrate', '/var/lib/nova-dedup-migrate')
PROGRAM = 'nova-dedup-migrate'
#: Its name in lab.cloud.PORTS and in the catalogue.
SERVICE = 'dedup-migrate'
_CONF = '/etc/nova-dedup-migrate/nova-dedup-migrate.conf'


def steps(cloud):
    return [Step('controller', functools.partial(_start, cloud),
                 ('users and endpoints', 'rabbitmq', 'memcached'))]


def _start(cloud):
    cloud.configure(cloud.control, _CONF, 'nova-dedup-migrate.conf')
    return start(cloud)


def start(cloud):
    """Start it, unless it runs, and wait until its API answers.

    :raises LabError: it ends, or does not answer
    """
    host = cloud.control
    cloud.start(host, PROGRAM, [
        *cloud.script(PROGRAM), '--config-file', _CONF, 'serve', '--bind',
        host.address, '--port', PORTS[SERVICE]])
    cloud.wait(host, PROGRAM, lambda: wsgi.answers(cloud, SERVICE), 90)
    return 'answers at %s' % cloud.url(SERVICE)


def kill(cloud):
    """End it as kill -9 does; start() starts another one."""
    process = cloud.control.process(PROGRAM)
    process.send(signal.SIGKILL)
    process.wait(10)
