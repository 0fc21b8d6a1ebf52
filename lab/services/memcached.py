# SPDX-License-Identifier: Apache-2.0
"""memcached: tokens that were validated, and Keystone's cache."""

import functools

from lab.services.mariadb import listens
from lab.steps import Step

PORT = 11211


def steps(cloud):
    return [Step('memcached', functools.partial(_start, cloud), ('hosts',))]


def _start(cloud):
    host = cloud.control
    cloud.start(host, 'memcached', [
        'memcached', '-u', 'root', '-l', host.address, '-p', str(PORT),
        '-m', '64'])
    cloud.wait(host, 'memcached',
               functools.partial(listens, host.address, PORT))
