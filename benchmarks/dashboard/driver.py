# SPDX-License-Identifier: Apache-2.0
"""Runs a program that drives the panels, and does what it requests.

It writes a line for each check and for each request; see drive.py.
"""

import os
import pathlib
import subprocess

_TOP = pathlib.Path(__file__).resolve().parents[2]


def run(python, module, arguments, obey, made, env=None):
    """Run a module of benchmarks.dashboard; add a row for each check.

    :param python: of an environment that has Playwright
    :param obey: called with what the world has to do; returns a line
    :param made: testkit.results.Results
    :param env: more variables
    """
    process = subprocess.Popen(
        [python, '-m', 'benchmarks.dashboard.' + module,
         *map(str, arguments)],
        cwd=_TOP, env={**os.environ, **(env or {})}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        for line in process.stdout:
            word, _, rest = line.rstrip('\n').partition(' ')
            if word == 'world':
                process.stdin.write(obey(rest) + '\n')
                process.stdin.flush()
                continue
            if word in ('ok', 'fails'):
                name, _, value = rest.partition(': ')
                made.add(name, value or 'yes', '', 'yes', word == 'ok')
            print(line, end='', flush=True)
        status = process.wait()
    finally:
        end(process)
    if status:
        made.add('driver ends', 'status %d' % status, '', 'status 0', False)


def end(process):
    """End a process that may have ended."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
