# SPDX-License-Identifier: Apache-2.0
"""The Python environment of the lab's services.

OpenStack stays in the environment of tools/bootstrap lab; ours sees it
and has this project installed on top, editable, so that a service that
is started again has the code as it is then.  Of what is not part of the
package, programs of the lab find the lab.
"""

import functools
import shutil
import subprocess
import sys

from lab import errors
from lab.settings import TOP
from lab.steps import Step

_ENTRY_POINTS = '''\
[neutron.ml2.mechanism_drivers]
lab = lab.services.neutron_driver:LabMechanismDriver
'''
_CLIENT = '''\
#!%s
import sys
from openstackclient import shell
sys.exit(shell.main())
'''


def steps(cloud):
    return [Step('python', functools.partial(_make, cloud))]


def _make(cloud):
    cloud.once('python', functools.partial(_create, cloud))


def _run(cloud, *argv):
    log = cloud.directory / 'python.log'
    with log.open('ab') as out:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out,
                              stderr=out, cwd=TOP, timeout=300, check=False)
    if done.returncode:
        raise errors.LabError('%s ended with status %d' % (
            argv[0], done.returncode), log)


def _declare(directory):
    """Write what an installed package of the lab's plugins would have.

    OpenStack finds plugins by entry points alone.
    """
    directory.mkdir()
    (directory / 'METADATA').write_text(
        'Metadata-Version: 2.1\nName: lab\nVersion: 0\n')
    (directory / 'entry_points.txt').write_text(_ENTRY_POINTS)


def _create(cloud):
    (cloud.directory / 'environment').write_text(
        '%s\n' % cloud.environment)
    install(cloud, TOP, cloud.python)
    # The one beside OpenStack does not find the commands of our package.
    client = cloud.python.parent / 'openstack'
    client.write_text(_CLIENT % cloud.python)
    client.chmod(0o755)


def install(cloud, tree, python):
    """Make an environment that sees OpenStack and this project.

    :param tree: of the project
    :param python: Path of the interpreter to be
    """
    place = python.parents[1]
    shutil.rmtree(place, ignore_errors=True)
    _run(cloud, sys.executable, '-m', 'venv', '--without-pip', place)
    packages = 'lib/python%d.%d/site-packages' % sys.version_info[:2]
    # addsitedir, for the .pth files of OpenStack's own dependencies
    (place / packages / 'openstack.pth').write_text(
        'import site; site.addsitedir(%r)\n%s\n' % (
            str(cloud.environment / packages), tree))
    _declare(place / packages / 'lab-0.dist-info')
    _run(cloud, sys.executable, '-m', 'pip', '--python', python,
         'install', '--quiet', '--no-input', '--disable-pip-version-check',
         '--no-deps', '--no-build-isolation', '--editable', tree)
