# SPDX-License-Identifier: Apache-2.0
"""Placement."""

import functools

from lab.services import wsgi
from lab.steps import Step

NAME = 'placement'
DIRECTORYS = ('/etc/placement',)


def steps(cloud):
    return [
        Step('placement', functools.partial(_start, cloud),
             ('databases', 'users and endpoints')),
    ]


def configure(cloud):
    cloud.configure(cloud.control, '/etc/placement/placement.conf',
                    'placement.conf')


def schema(cloud):
    cloud.execute(cloud.control, 'placement-manage',
                  [*cloud.script('placement-manage'), 'db', 'sync'])


def _start(cloud):
    return wsgi.start(cloud, 'placement', 'placement', 'placement.wsgi.api')
