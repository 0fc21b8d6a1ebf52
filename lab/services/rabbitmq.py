# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ, the message queue."""

import functools

from lab.services.mariadb import listens
from lab.steps import Step

DIRECTORYS = ('/var/lib/rabbitmq', '/etc/rabbitmq')
PORT = 5672
# Debian's command changes to a user who may not enter the lab's directory.
_PROGRAM = '/usr/lib/rabbitmq/bin/rabbitmq-server'
ENVIRONMENT = {
    'HOME': '/var/lib/rabbitmq',
    'RABBITMQ_NODENAME': 'lab@localhost',
    'RABBITMQ_CONFIG_FILE': '/etc/rabbitmq/rabbitmq.conf',
    'RABBITMQ_CONF_ENV_FILE': '/etc/rabbitmq/rabbitmq-env.conf',
    'RABBITMQ_ENABLED_PLUGINS_FILE': '/etc/rabbitmq/enabled_plugins',
    'RABBITMQ_MNESIA_BASE': '/var/lib/rabbitmq/mnesia',
    'RABBITMQ_LOG_BASE': '/var/lib/rabbitmq/log',
    # Erlang's idle schedulers spin otherwise; there are few processors.
    'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
        '+sbwt none +sbwtdcpu none +sbwtdio none',
}


def steps(cloud):
    return [Step('rabbitmq', functools.partial(_start, cloud), ('hosts',))]


def _start(cloud):
    host = cloud.control
    cloud.configure(host, '/etc/rabbitmq/rabbitmq.conf', 'rabbitmq.conf')
    start(cloud)


def start(cloud):
    """Start it, unless it runs, and wait until it answers."""
    host = cloud.control
    cloud.start(host, 'rabbitmq', [_PROGRAM], env=ENVIRONMENT)
    cloud.wait(host, 'rabbitmq',
               functools.partial(listens, host.address, PORT), 120)
