# SPDX-License-Identifier: Apache-2.0
"""Glance."""

import functools
import shutil

from lab.services import wsgi
from lab.steps import Step

NAME = 'glance'
DIRECTORYS = ('/etc/glance', '/var/lib/glance')


def steps(cloud):
    return [
        Step('glance', functools.partial(_start, cloud),
             ('databases', 'users and endpoints')
             + (('storage of control',) if cloud.settings.has_ceph else ())),
    ]


def configure(cloud):
    host = cloud.control
    cloud.configure(host, '/etc/glance/glance-api.conf', 'glance-api.conf')
    shutil.copy(cloud.data('glance/glance-api-paste.ini'),
                host.directory / 'etc/glance')
    for name in ('images', 'staging', 'tasks', 'locks'):
        (host.directory / 'var/lib/glance' / name).mkdir(exist_ok=True)


def schema(cloud):
    cloud.execute(cloud.control, 'glance-manage',
                  [*cloud.script('glance-manage'), 'db_sync'])


def _start(cloud):
    return wsgi.start(cloud, 'glance', 'image', 'glance.wsgi.api')
