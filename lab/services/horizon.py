# SPDX-License-Identifier: Apache-2.0
"""Horizon with our panels, served by gunicorn.

It has an environment of its own, which tools/bootstrap dashboard makes.
"""

import functools
import os
import secrets
import subprocess
import urllib.request

from lab import errors
from lab.settings import TOP
from lab.steps import Step

PORT = 8080
_SETTINGS = TOP / 'lab' / 'horizon'
_NAME = 'horizon'


def environment(directory, address, keystone):
    """Return the variables that its settings read.

    :param directory: Path for its static files
    :param address: that browsers know it by
    :param keystone: URL without a version
    """
    return {**os.environ, 'PYTHONPATH': f'{_SETTINGS}:{TOP}',
            'DJANGO_SETTINGS_MODULE': 'openstack_dashboard.settings',
            'LAB_HORIZON_DIRECTORY': str(directory),
            'LAB_HORIZON_ADDRESS': address,
            'LAB_HORIZON_KEYSTONE': keystone,
            'LAB_HORIZON_SECRET': secrets.token_hex(16)}


def compress(python, env, log):
    """Make its static files.

    :param log: what it prints goes there
    :raises CalledProcessError:
    """
    subprocess.run([python, '-m', 'django', 'compress', '--force'],
                   env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                   check=True)


def command(python, address, port):
    """Return the command that serves it."""
    return [str(python), '-m', 'gunicorn', '--bind', f'{address}:{port}',
            '--threads', '8', '--timeout', '120', 'horizon_wsgi:application']


def answers(url):
    """Return whether its log-in page is there."""
    try:
        urllib.request.urlopen(url + '/auth/login/', timeout=10).close()
        return True
    except OSError:
        return False


def url(cloud):
    return f'http://{cloud.control.address}:{PORT}'


def python():
    """Return the interpreter of its environment, which is made if need be.

    :raises LabError: it cannot be made
    """
    done = subprocess.run(
        [TOP / 'tools' / 'bootstrap', 'dashboard', '--print-venv'],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        check=False)
    if done.returncode:
        raise errors.LabError(
            'the environment of Horizon cannot be made: run '
            'tools/bootstrap dashboard')
    return done.stdout.strip() + '/bin/python'


def steps(cloud):
    return [Step('horizon', functools.partial(_start, cloud),
                 ('users and endpoints', 'controller', 'nova-api'))]


def _start(cloud):
    host = cloud.control
    process = host.process(_NAME)
    if process is None or not process.is_alive():
        program = python()
        env = environment(host.directory / _NAME, host.address,
                          cloud.identity)
        with (host.directory / 'horizon-compress.log').open('wb') as log:
            compress(program, env, log)
        cloud.start(host, _NAME, command(program, host.address, PORT),
                    env=env)
    cloud.wait(host, _NAME, lambda: answers(url(cloud)), 300)
    return 'answers at ' + url(cloud)
