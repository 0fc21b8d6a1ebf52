# SPDX-License-Identifier: Apache-2.0
"""Drive the panels of Horizon in Chromium; print what works.

``make dashboard-check``.  Horizon and the controller are the real ones;
Keystone, Nova, Placement and the agents behind them are emulated.
Screenshots and logs are in build/dashboard-check.
"""

import argparse
import contextlib
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

from benchmarks.dashboard import driver
from benchmarks.dashboard import world as worlds
from lab.services import horizon
from testkit import results

_TOP = pathlib.Path(__file__).resolve().parents[1]
_OUT = _TOP / 'build/dashboard-check'
_PICTURES = _TOP / 'doc/source/admin/images'


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--python', required=True,
                        help='of an environment that has Horizon')
    parser.add_argument('--quick', action='store_true',
                        help='the same, as it takes five minutes')
    parser.add_argument('--only', action='append', default=[],
                        metavar='PART', help='of drive.py; default: all')
    parser.add_argument('--pictures', action='store_true',
                        help='renew the pictures of the documentation')
    arguments = parser.parse_args(argv)
    shutil.rmtree(_OUT, ignore_errors=True)
    _OUT.mkdir(parents=True)
    made = results.Results('make dashboard-check')
    figures(arguments.python, made)
    with contextlib.ExitStack() as stack:
        world = worlds.World(_OUT, _free_port())
        stack.callback(world.stop)
        world.start()
        url = start_horizon(stack, arguments.python, world.cloud.url)
        driver.run(arguments.python, 'drive', [url, _OUT, *arguments.only],
                   world.obey, made)
    print(made.text())
    made.write(_OUT / 'report.json')
    if arguments.pictures and not made.status():
        _PICTURES.mkdir(exist_ok=True)
        for path in _OUT.glob('dashboard-*.png'):
            shutil.copy(path, _PICTURES)
    return made.status()


def figures(python, made):
    """Run the tests that need Django alone."""
    done = subprocess.run(
        [python, '-m', 'unittest', 'discover', '-t', str(_TOP), '-s',
         str(_TOP / 'nova_dedup_migrate_dashboard/tests/django')],
        cwd=_TOP, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL)
    print(done.stderr, flush=True)
    found = re.search(r'Ran (\d+) test', done.stderr)
    made.add('tests with Django passed', int(found.group(1)) if found else 0,
             '', 'all', found is not None and done.returncode == 0)


def start_horizon(stack, python, keystone):
    """Start Horizon; return its URL."""
    env = horizon.environment(_OUT, '127.0.0.1', keystone)
    log = stack.enter_context((_OUT / 'horizon.log').open('wb'))
    print('Compressing the static files of Horizon', flush=True)
    horizon.compress(python, env, log)
    port = _free_port()
    process = subprocess.Popen(
        horizon.command(python, '127.0.0.1', port),
        env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    stack.callback(driver.end, process)
    url = 'http://127.0.0.1:%d' % port
    end = time.monotonic() + 300
    while not horizon.answers(url):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError('Horizon does not start; see %s'
                               % (_OUT / 'horizon.log'))
        time.sleep(0.5)
    return url


def _free_port():
    with socket.socket() as one:
        one.bind(('127.0.0.1', 0))
        return one.getsockname()[1]


if __name__ == '__main__':
    sys.exit(main())
