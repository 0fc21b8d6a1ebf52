# SPDX-License-Identifier: Apache-2.0
"""Tempest against the lab, with Nova's driver and with ours.

What passes with Nova's driver has to pass with ours.  The tests are those of
our plugin and those of Tempest that are about live migration; the guest of
the lab has no SSH server, so no test logs in to it.
"""

import dataclasses
import os
import re
import shutil
import subprocess

from lab import client
from lab import errors
from lab import guest
from lab import up
from lab.cloud import INSTANCES
from lab.settings import Settings
from lab.settings import TOP
from testkit import results

DIRECTORY = TOP / 'build' / 'tempest'
#: What all runs have, and what the whole one has besides.
TESTS = ('nova_dedup_migrate_tempest_plugin',
         r'tempest\.api\.compute\.admin\.test_live_migration')
MORE = (r'tempest\.api\.compute\.images', r'tempest\.api\.compute\.servers',
        r'tempest\.api\.compute\.admin\.test_migrations',
        r'tempest\.api\.compute\.volumes')
#: Seconds for all tests of one driver.
LIMIT = 7200
#: MiB of flavors, which differ for the tests that resize.
_MEMORY = (guest.IDLE_MEMORY, guest.IDLE_MEMORY + 32)
_OUTCOME = re.compile(
    r'^\{\d+\} (?P<name>.+?) (?:\[[\d.]+s\] )?\.\.\. '
    r'(?P<outcome>ok|FAILED|SKIPPED)(?:: (?P<reason>.*))?$', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """:ivar outcome: ok, FAILED or SKIPPED
    :ivar reason: why a test was skipped, or ''
    """

    outcome: str
    reason: str = ''


def parse(text):
    """Return {name of a test or of a class's setUp: Outcome}."""
    return {re.sub(r'\[.*', '', found['name']): Outcome(
        found['outcome'], found['reason'] or '')
        for found in _OUTCOME.finditer(text)}


def judge(theirs, ours, found):
    """Add rows about what Nova's driver and ours passed.

    :param theirs: as of parse(), with Nova's driver; None: it did not run
    :param ours: the same with our driver
    :param found: results.Results
    """
    for name, outcomes in (("Nova's driver", theirs), ('our driver', ours)):
        if outcomes is not None:
            counts = [sum(one.outcome == kind for one in outcomes.values())
                      for kind in ('ok', 'FAILED', 'SKIPPED')]
            found.add('tests with ' + name, '%d passed, %d failed, %d '
                      'skipped' % tuple(counts), '', 'some pass',
                      counts[0] > 0)
    for name, one in sorted(ours.items()):
        if one.outcome == 'FAILED':
            theirs_too = (theirs or {}).get(name)
            excused = theirs_too is not None and (
                theirs_too.outcome == 'FAILED')
            found.add(name, 'fails, also with Nova\'s' if excused
                      else 'fails', '', "passes, or fails with Nova's",
                      excused)


def run(name, directory, quick, concurrency, progress):
    """Bring up a lab with each driver, and run the tests in it.

    :returns: exit status
    """
    found = results.Results('make tempest' + (
        ' ARGS=--quick' if quick else ''))
    tests = TESTS if quick else TESTS + MORE
    outcomes = {}
    for driver in ('dedup',) if quick else ('stock', 'dedup'):
        cloud = up.up(name, directory, Settings(
            profile='volume', drivers=(driver, driver), migration_rate=0),
            progress)
        try:
            outcomes[driver] = _tests(cloud, driver, tests, concurrency,
                                      progress)
        finally:
            cloud.lab.destroy()
    judge(outcomes.get('stock'), outcomes['dedup'], found)
    found.write(DIRECTORY / 'report.json')
    print(found.text())
    for test, one in sorted(outcomes['dedup'].items()):
        if one.outcome == 'SKIPPED':
            print('skipped: %s: %s' % (test, one.reason))
    return found.status()


def _tests(cloud, driver, tests, concurrency, progress):
    """Run tests in a lab that is up; return their outcomes."""
    directory = DIRECTORY / driver
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    log = directory.with_suffix('.log')
    tempest = [cloud.python, '-m', 'tempest.cmd.main']
    # tempest starts the "python" and programs of its environment
    env = {**os.environ, 'PYTHON': str(cloud.python), 'PATH': '%s:%s' % (
        cloud.python.parent, os.environ['PATH'])}
    with log.open('w') as output:
        subprocess.run([*tempest, 'init', directory], check=False,
                       stdin=subprocess.DEVNULL, stdout=output,
                       stderr=output, env=env, timeout=120)
        (directory / 'etc/tempest.conf').write_text(
            cloud.render('tempest.conf', directory=directory,
                         **_resources(cloud)))
        progress.say('Tempest with driver %s: %s' % (driver, log))
        try:
            subprocess.run(
                [*tempest, 'run', '--concurrency', str(concurrency),
                 '--regex', '|'.join('(%s)' % test for test in tests)],
                check=False, cwd=directory, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, env=env, timeout=LIMIT)
        except subprocess.TimeoutExpired as error:
            raise errors.LabError('Tempest was not done after %d s' % LIMIT,
                                  log) from error
    found = parse(log.read_text(errors='replace'))
    if not found:
        raise errors.LabError('Tempest ran no test', log)
    return found


def _resources(cloud):
    """Make what tempest.conf names; return the template's variables."""
    guest.upload_idle(cloud)
    connection = client.connect(cloud)
    image = connection.image.find_image(guest.IDLE_IMAGE,
                                        ignore_missing=False)
    network = connection.network.find_network(INSTANCES,
                                              ignore_missing=False)
    # Each test has a project of its own.
    connection.network.update_network(network, is_shared=True)
    flavors = []
    for memory in _MEMORY:
        name = 'tempest-%d' % memory
        flavors.append((
            connection.compute.find_flavor(name)
            or connection.compute.create_flavor(
                name=name, ram=memory, vcpus=1, disk=1)).id)
    return {
        'image': image.id, 'image_alt': image.id, 'network': network.name,
        'flavor': flavors[0], 'flavor_alt': flavors[1],
        'extensions': sorted(extension.alias for extension in
                             connection.network.extensions())}
