# SPDX-License-Identifier: Apache-2.0
"""Tempest against the lab, with Nova's driver and with ours.

What passes with Nova's driver has to pass with ours.  Most tests log in to
guests (guests/ssh) by the lab's network of instances.
"""

import dataclasses
import os
import re
import shutil
import signal
import subprocess

from guests.ssh import image as ssh_image
from lab import client
from lab import errors
from lab import guest
from lab import up
from lab.cloud import INSTANCES
from lab.services import nova
from lab.settings import Settings
from lab.settings import TOP
from testkit import results
from testkit import table

DIRECTORY = TOP / 'build' / 'tempest'
_PLUGIN = r'nova_dedup_migrate_tempest_plugin'
#: Those of our plugin for which the destination has no agent.
_WITHOUT_AGENT = _PLUGIN + r'\.scenario\.test_agents'
_ADMIN = r'tempest\.api\.compute\.admin\.'
#: Name: regular expressions of its tests.
GROUPS = {
    'plugin': (_PLUGIN,),
    'live-migration': (_ADMIN + 'test_live_migration',
                       _ADMIN + 'test_migrations',
                       _ADMIN + 'test_servers_on_multinodes'),
    'scenario': (r'tempest\.scenario\.test_minimum_basic',
                 r'tempest\.scenario\.test_server_basic_ops'),
    'servers': (r'tempest\.api\.compute\.servers',
                r'tempest\.api\.compute\.images',
                r'tempest\.api\.compute\.volumes'),
    'volume': (r'tempest\.api\.volume\.(?!admin)',),
}
QUICK = ('plugin',)
#: Those of which tests log in to guests.  The guest that lets them has a
#: config drive, a local disk with which Tempest's tests do not migrate
#: instances that boot from volumes.
LOGGING_IN = ('plugin', 'scenario', 'servers')
#: Seconds for all tests of one driver.
LIMIT = 4 * 3600
#: By how many MiB flavors differ, for the tests that resize.
_MORE_MEMORY = 32
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
    for driver, outcomes in (("Nova's driver", theirs),
                             ('our driver', ours)):
        for group, counts in _counts(outcomes or {}):
            found.add('%s, %s' % (group, driver), '%d passed, %d failed, '
                      '%d skipped' % counts, 'tests', 'some pass',
                      counts[0] > 0)
    for name, one in sorted(ours.items()):
        if one.outcome == 'FAILED':
            theirs_too = (theirs or {}).get(name)
            excused = theirs_too is not None and (
                theirs_too.outcome == 'FAILED')
            found.add(name, 'fails, also with Nova\'s' if excused
                      else 'fails', '', "passes, or fails with Nova's",
                      excused)


def _counts(outcomes):
    """Yield (group, (passed, failed, skipped)) of groups that ran."""
    for group, tests in GROUPS.items():
        kinds = [one.outcome for name, one in outcomes.items()
                 if any(re.search(test, name) for test in tests)]
        if kinds:
            yield group, tuple(map(kinds.count, ('ok', 'FAILED', 'SKIPPED')))


def run(name, directory, command, groups, concurrency, progress):
    """Bring up a lab with each driver, and run the tests in it.

    :param command: as it was typed
    :param groups: of GROUPS
    :returns: exit status
    """
    found = results.Results(command)
    outcomes = {}
    for driver in 'stock', 'dedup':
        # Those of the plugin need our driver.
        wanted = [group for group in groups
                  if driver == 'dedup' or group != 'plugin']
        if not wanted:
            continue
        cloud = up.up(name, directory, Settings(
            profile='volume', drivers=(driver, driver),
            controller=driver == 'dedup'), progress)
        try:
            outcomes[driver] = tests(cloud, driver, wanted, concurrency,
                                     progress)
        finally:
            cloud.lab.destroy()
    judge(outcomes.get('stock'), outcomes['dedup'], found)
    found.write(DIRECTORY / 'report.json')
    print('\n%s\n\n%s' % (show(outcomes), found.text()))
    for test, one in sorted(outcomes['dedup'].items()):
        if one.outcome == 'SKIPPED':
            print('skipped: %s: %s' % (test, one.reason))
    return found.status()


def show(outcomes):
    """Return the table of how many tests passed.

    :param outcomes: {driver: as of parse()}
    """
    return table.text(
        ('tests', 'driver', 'passed', 'failed', 'skipped'),
        [(group, driver, *counts) for driver, known in outcomes.items()
         for group, counts in _counts(known)])


def tests(cloud, driver, groups, concurrency, progress):
    """Run tests in a lab that is up; return their outcomes."""
    known = {}
    for kind, logs_in in (('', True), ('-without-ssh', False)):
        wanted = [test for group in groups for test in GROUPS[group]
                  if (group in LOGGING_IN) == logs_in]
        if wanted:
            known.update(_Tempest(cloud, driver + kind, progress, logs_in)
                         .run(wanted, concurrency))
    if 'plugin' in groups:
        away = cloud.computes[-1]
        away.process(nova.AGENT).send(signal.SIGKILL)
        known = {**{name: one for name, one in known.items()
                    if not re.search(_WITHOUT_AGENT, name)},
                 **_Tempest(cloud, driver + '-without-agent', progress,
                            True, away.name).run([_WITHOUT_AGENT], 1)}
    return known


class _Tempest:
    """Tempest with its configuration.

    :param name: of its directory and log in DIRECTORY
    :param logs_in: whether tests log in to guests
    :param host_without_agent: '' if there is none
    """

    def __init__(self, cloud, name, progress, logs_in,
                 host_without_agent=''):
        self._cloud = cloud
        self._directory = DIRECTORY / name
        self._log = DIRECTORY / (name + '.log')
        self._progress = progress
        # tempest starts the "python" and programs of its environment
        self._env = {
            **os.environ, 'PYTHON': str(cloud.python),
            'PATH': '%s:%s' % (cloud.python.parent, os.environ['PATH'])}
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._log.unlink(missing_ok=True)
        self._tempest('init', self._directory, cwd=DIRECTORY, timeout=120)
        (self._directory / 'etc/tempest.conf').write_text(cloud.render(
            'tempest.conf', directory=self._directory,
            logs_in=logs_in, host_without_agent=host_without_agent,
            **_resources(cloud, logs_in)))

    def _tempest(self, *words, cwd, timeout):
        with self._log.open('a') as output:
            subprocess.run(
                [self._cloud.python, '-m', 'tempest.cmd.main', *words],
                check=False, cwd=cwd, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, env=self._env,
                timeout=timeout)

    def run(self, wanted, concurrency):
        """Return the outcomes.

        :param wanted: regular expressions
        :raises LabError: no test ran, or they take too long
        """
        self._progress.say('Tempest: %s' % self._log)
        try:
            self._tempest('run', '--concurrency', str(concurrency), '--regex',
                          '|'.join('(%s)' % test for test in wanted),
                          cwd=self._directory, timeout=LIMIT)
        except subprocess.TimeoutExpired as error:
            raise errors.LabError('Tempest was not done after %d s' % LIMIT,
                                  self._log) from error
        found = parse(self._log.read_text(errors='replace'))
        if not found:
            raise errors.LabError('Tempest ran no test', self._log)
        return found


def _resources(cloud, logs_in):
    """Make what tempest.conf names; return the template's variables."""
    if logs_in:
        guest.upload_ssh(cloud)
        name, memory = guest.SSH_IMAGE, guest.SSH_MEMORY
    else:
        guest.upload_idle(cloud)
        name, memory = guest.IDLE_IMAGE, guest.IDLE_MEMORY
    connection = client.connect(cloud)
    image = connection.image.find_image(name, ignore_missing=False)
    network = connection.network.find_network(INSTANCES,
                                              ignore_missing=False)
    # Each test has a project of its own.
    connection.network.update_network(network, is_shared=True)
    flavors = []
    for mib in memory, memory + _MORE_MEMORY:
        name = 'tempest-%d' % mib
        flavors.append((
            connection.compute.find_flavor(name)
            or connection.compute.create_flavor(
                name=name, ram=mib, vcpus=1, disk=1)).id)
    return {
        'image': image.id, 'image_alt': image.id, 'network': network.name,
        'image_file': ssh_image.build(),
        'image_properties': guest.SSH_PROPERTIES,
        'flavor': flavors[0], 'flavor_alt': flavors[1],
        'extensions': sorted(extension.alias for extension in
                             connection.network.extensions())}
