# SPDX-License-Identifier: Apache-2.0
"""SSH between compute hosts, by which Nova copies disks for a resize.

One key of the lab lets root of each of them in on the others.
"""

import functools
import pathlib
import pwd

from guests.errors import run
from lab.services.mariadb import listens
from lab.steps import Step

_HOME = pathlib.Path(pwd.getpwuid(0).pw_dir, '.ssh')
#: sshd insists on the second one.
DIRECTORYS = (_HOME, '/run/sshd')
_PORT = 22
_KEY = 'id_ed25519'


def steps(cloud):
    return [Step('ssh key', functools.partial(_key, cloud), ('hosts',)), *(
        Step('sshd of %s' % name, functools.partial(_start, cloud, name),
             ('ssh key',)) for name in cloud.settings.hosts)]


def _key(cloud):
    cloud.once('ssh key', lambda: run([
        'ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', 'lab', '-f',
        cloud.directory / _KEY]))


def _start(cloud, name):
    host = cloud.host(name)
    cloud.configure(host, _HOME / 'config', 'ssh_config', home=_HOME,
                    key=_KEY)
    cloud.configure(host, _HOME / 'sshd_config', 'sshd_config', home=_HOME,
                    key=_KEY, port=_PORT)
    ours = host.directory / str(_HOME).lstrip('/')
    ours.chmod(0o700)
    for source, target in ((_KEY, _KEY), (_KEY + '.pub', 'authorized_keys')):
        file = ours / target
        file.touch(mode=0o600)
        file.write_bytes((cloud.directory / source).read_bytes())
    cloud.start(host, 'sshd', ['/usr/sbin/sshd', '-D', '-e', '-f',
                               _HOME / 'sshd_config'])
    cloud.wait(host, 'sshd', functools.partial(listens, host.address, _PORT))
