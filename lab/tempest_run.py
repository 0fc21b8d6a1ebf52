# SPDX-License-Identifier: Apache-2.0
"""Tempest against the lab, with Nova's driver and with ours.

Most tests log in to guests (guests/ssh) by the lab's network of instances.
"""

import os
import shutil
import signal
import subprocess

from guests.ssh import image as ssh_image
from lab import client
from lab import errors
from lab import guest
from lab import tempest_results
from lab import tempest_tests
from lab import up
from lab.cloud import INSTANCES
from lab.services import nova
from lab.settings import Settings
from lab.settings import TOP
from testkit import results

DIRECTORY = TOP / 'build' / 'tempest'
#: Seconds for one call of Tempest; there are up to three for each run.
LIMIT = 4 * 3600
#: The same, of the quick form.
QUICK_LIMIT = 600
_WITHOUT_AGENT = 'without-agent'
#: By how many MiB flavors differ, for the tests that resize.
_MORE_MEMORY = 32


class Campaign:
    """What is run, and what has come of it so far.

    :param profile: of the lab, of lab.settings.PROFILES
    :param groups: {name: regular expressions}, as tempest_tests.GROUPS
    :param concurrencies: tests at a time of each run with our driver
    :param quick: a lab without backups, and less time
    :param drivers: stock, dedup, or both
    :param found: results.Results
    :param progress: steps.Progress
    """

    def __init__(self, profile, groups, concurrencies, quick, drivers, found,
                 progress):
        self._profile = profile
        self._drivers = drivers
        self._groups = groups
        self._quick = quick
        self._limit = QUICK_LIMIT if quick else LIMIT
        self._concurrencies = {'stock': (1,), 'dedup': concurrencies}
        self._found = found
        self._progress = progress
        #: {tempest_results.Run: {test: Outcome}}
        self.outcomes = {}

    def run(self, name, directory):
        """Bring up a lab with a driver, one after the other, and run the
        tests in it.

        :param name: of the lab
        :param directory: of the lab
        """
        for driver in self._drivers:
            groups = {group: tests for group, tests in self._groups.items()
                      if driver == 'dedup'
                      or group not in tempest_tests.OURS}
            if not groups:
                continue
            cloud = up.up(name, directory, Settings(
                profile=self._profile, drivers=(driver, driver),
                controller=driver == 'dedup',
                backups=self._profile == 'volume' and not self._quick),
                self._progress)
            try:
                for concurrency in self._concurrencies[driver]:
                    self._tests(cloud, tempest_results.Run(
                        driver, concurrency), groups)
                if _WITHOUT_AGENT in groups:
                    self._without_agent(cloud, groups[_WITHOUT_AGENT])
            finally:
                cloud.lab.destroy()

    def _tests(self, cloud, run, groups):
        """Run tests in a lab that is up."""
        for kind, logs_in in (('', True), ('-without-ssh', False)):
            wanted = [test for group, tests in groups.items()
                      for test in tests if group != _WITHOUT_AGENT
                      and (group in tempest_tests.LOGGING_IN) == logs_in]
            if wanted:
                self._call(cloud, run, kind, wanted, logs_in)

    def _without_agent(self, cloud, wanted):
        """Kill the agent of a destination; run the tests for that."""
        away = cloud.computes[-1]
        away.process(nova.AGENT).send(signal.SIGKILL)
        self._call(cloud, tempest_results.Run('dedup', 1), '-without-agent',
                   wanted, True, away.name)

    def _call(self, cloud, run, kind, wanted, logs_in, away=''):
        """Call Tempest; keep what has come of its tests."""
        name = '%s-%d%s' % (run.driver, run.concurrency, kind)
        tempest = _Tempest(cloud, name, logs_in, away)
        self._progress.say('Tempest: %s' % tempest.log)
        ended = tempest.run(wanted, run.concurrency, self._limit)
        known = tempest_results.parse(
            tempest.log.read_text(errors='replace'))
        self.outcomes.setdefault(run, {}).update(known)
        self._found.add(
            'Tempest, %s' % name,
            'ran no test: see %s' % tempest.log if not known
            else 'ended' if ended
            else 'was stopped after %d s; what had ended counts'
            % self._limit, '', 'ends within %d s' % self._limit,
            bool(known) and ended)


def run(name, directory, command, campaign):
    """Run a campaign; print and write what has come of it.

    This is done, too, if it fails or is interrupted.

    :param command: as it was typed
    :param campaign: {name: value}, of Campaign without found
    :returns: exit status
    """
    found = results.Results(command)
    done = Campaign(found=found, **campaign)
    whole = False
    try:
        done.run(name, directory)
        whole = True
    finally:
        if not whole:
            found.add('this command', 'was broken off', '',
                      'comes to its end', False)
        tempest_results.judge(done.outcomes, found)
        found.write(DIRECTORY / 'report.json')
        print('\n%s\n\n%s' % (tempest_results.show(done.outcomes),
                              found.text()))
        print('\n'.join(tempest_results.skipped(done.outcomes)))
    return found.status()


class _Tempest:
    """Tempest with its configuration.

    :param name: of its directory and log in DIRECTORY
    :param logs_in: whether tests log in to guests
    :param host_without_agent: '' if there is none
    """

    def __init__(self, cloud, name, logs_in, host_without_agent):
        self._cloud = cloud
        self._directory = DIRECTORY / name
        self.log = DIRECTORY / (name + '.log')
        # tempest starts the "python" and programs of its environment; what
        # it writes is in the log if it is stopped, too
        self._env = {
            **os.environ, 'PYTHON': str(cloud.python),
            'PYTHONUNBUFFERED': '1',
            'PATH': '%s:%s' % (cloud.python.parent, os.environ['PATH'])}
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._directory, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        if not self._tempest('init', self._directory, cwd=DIRECTORY,
                             limit=120):
            raise errors.LabError('tempest init did not end', self.log)
        (self._directory / 'etc/tempest.conf').write_text(cloud.render(
            'tempest.conf', directory=self._directory,
            logs_in=logs_in, host_without_agent=host_without_agent,
            **_resources(cloud, logs_in)))

    def run(self, wanted, concurrency, limit):
        """Run tests; return whether they ended within a time.

        :param wanted: regular expressions
        :param limit: seconds
        """
        return self._tempest(
            'run', '--concurrency', str(concurrency),
            '--exclude-list', tempest_tests.SKIP_LIST, '--regex',
            '|'.join('(%s)' % test for test in wanted),
            cwd=self._directory, limit=limit)

    def _tempest(self, *words, cwd, limit):
        with self.log.open('a') as output:
            return ends_within(
                limit, [self._cloud.python, '-m', 'tempest.cmd.main',
                        *words],
                cwd=cwd, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, env=self._env)


def ends_within(limit, command, **options):
    """Run a program; end it and all that it has started after some time.

    :param limit: seconds
    :param options: of subprocess.Popen
    :returns: whether it ended before
    """
    with subprocess.Popen(command, start_new_session=True,
                          **options) as process:
        try:
            process.wait(limit)
            return True
        except subprocess.TimeoutExpired:
            return False
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


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
