# SPDX-License-Identifier: Apache-2.0
"""Neutron's API, without agents: Nova asks it also for instances without
ports.

Its mechanism driver is the lab's own, neutron_driver.
"""

import functools
import shutil

from lab.services import wsgi
from lab.steps import Step

NAME = 'neutron'
DIRECTORYS = ('/etc/neutron', '/var/lib/neutron')
_ML2 = '/etc/neutron/plugins/ml2/ml2_conf.ini'


def steps(cloud):
    return [
        Step('neutron', functools.partial(_start, cloud),
             ('databases', 'users and endpoints', 'rabbitmq')),
    ]


def configure(cloud):
    host = cloud.control
    cloud.configure(host, '/etc/neutron/neutron.conf', 'neutron.conf')
    cloud.configure(host, _ML2, 'ml2_conf.ini')
    shutil.copy(cloud.data('neutron/api-paste.ini'),
                host.directory / 'etc/neutron')


def schema(cloud):
    cloud.execute(cloud.control, 'neutron-db-manage', [
        *cloud.script('neutron-db-manage'), '--config-file',
        '/etc/neutron/neutron.conf', '--config-file', _ML2, 'upgrade',
        'head'])


def _start(cloud):
    return wsgi.start(cloud, 'neutron', 'network', 'neutron.wsgi.api')
