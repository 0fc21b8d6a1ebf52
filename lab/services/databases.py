# SPDX-License-Identifier: Apache-2.0
"""MariaDB, and the empty databases of all services in it.

Making these takes most of the time of a first start, and they depend on
nothing but the versions installed: MariaDB's directory with all of them is
kept in the cache and copied from there the next time.  What tells of one
lab, such as passwords and endpoints, is added later.
"""

import functools
import re
import subprocess

from guests import cache
from guests.errors import run
from lab import errors
from lab.services import mariadb
from lab.steps import Step

#: Raised when what is kept is made in another way.
_VERSION = '1'
_RESTORED = 'restored databases'


def steps(cloud, services):
    """Steps of these service modules.

    :param services: each has schema(cloud), which makes its databases,
        and configure(cloud), which comes before
    """
    names = [service.NAME for service in services]
    name = _name(cloud, names)
    found = [Step('mariadb', functools.partial(_start, cloud, name),
                  ('hosts',))]
    for service in services:
        found.append(Step(
            '%s database' % service.NAME,
            functools.partial(_make, cloud, service),
            ('mariadb', 'python')))
    found.append(Step(
        'databases', functools.partial(_keep, cloud, name),
        tuple('%s database' % each for each in names)))
    return found


def _name(cloud, names):
    """Name of the directory in the cache."""
    versions = subprocess.run(
        ['mariadbd', '--version'], capture_output=True, text=True,
        timeout=30, check=False).stdout
    return cache.key(_VERSION, re.sub(r'\s+', ' ', versions),
                     str(cloud.environment), ' '.join(names))


def _start(cloud, name):
    kept = cache.root() / 'databases' / name / 'mysql'

    def create():
        if kept.exists():
            run(['cp', '-a', '--sparse=always', '%s/.' % kept,
                 mariadb.directory(cloud)])
            cloud.once(_RESTORED, lambda: None)
        else:
            mariadb.create(cloud)

    cloud.once('mariadb', create)
    mariadb.start(cloud)
    return 'databases from the cache' if _restored(cloud) else None


def _restored(cloud):
    return cloud.was_done(_RESTORED)


def _make(cloud, service):
    service.configure(cloud)
    if _restored(cloud):
        return 'from the cache'
    cloud.once('database of ' + service.NAME,
               functools.partial(service.schema, cloud))
    return None


def _keep(cloud, name):
    if not _restored(cloud):
        cloud.once('databases', functools.partial(_copy, cloud, name))


def _copy(cloud, name):
    process = cloud.control.process('mariadb')
    process.end(60)
    if process.is_alive():
        raise errors.LabError('MariaDB does not end')
    cache.entry('databases', name, lambda work: run(
        ['cp', '-a', '--sparse=always', mariadb.directory(cloud),
         work / 'mysql']))
    mariadb.start(cloud)
