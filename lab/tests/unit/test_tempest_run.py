# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import os
import pathlib
import select
import subprocess
import tempfile
import unittest
from unittest import mock

from lab import errors
from lab import steps
from lab import tempest_run
from lab import tempest_tests

SERVERS = '{0} tempest.api.compute.servers.test_x.A.test_%s [1s] ... %s\n'
PLUGIN = ('{0} nova_dedup_migrate_tempest_plugin.scenario.test_x.A.test_a '
          '[1s] ... ok\n')
AGENTS = ('{0} nova_dedup_migrate_tempest_plugin.scenario.test_agents.A'
          '.test_a [1s] ... ok\n')


class TempestRunTest(unittest.TestCase):
    """Labs and Tempest are not real."""

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.settings = []
        self.calls = []
        #: What Tempest writes and whether it ends, by the name of its log.
        self.output = {}
        for patch in (
                mock.patch.object(tempest_run, 'DIRECTORY', self.directory),
                mock.patch.object(tempest_run.up, 'up', autospec=True,
                                  side_effect=self.up),
                mock.patch.object(tempest_run, '_Tempest', self.tempest)):
            patch.start()
            self.addCleanup(patch.stop)

    def up(self, name, directory, settings, progress):
        self.settings.append(settings)
        self.cloud = mock.MagicMock()
        self.cloud.computes[-1].name = 'compute2'
        return self.cloud

    def tempest(self, cloud, name, logs_in, away):
        made = mock.Mock(log=self.directory / (name + '.log'))
        text, ends = self.output.get(name, (SERVERS % ('a', 'ok'), True))
        made.log.write_text(text)

        def run(wanted, concurrency, limit):
            self.calls.append((name, tuple(wanted), concurrency, away))
            return ends
        made.run = run
        return made

    def run_campaign(self, *groups, quick=False, concurrencies=(1, 2),
                     profile='volume', drivers=('stock', 'dedup')):
        """Run it; return (exit status, rows of the report)."""
        with contextlib.redirect_stdout(io.StringIO()) as self.printed:
            status = tempest_run.run('temp', self.directory, 'make tempest', {
                'profile': profile, 'concurrencies': concurrencies,
                'groups': {name: tempest_tests.GROUPS[name]
                           for name in groups},
                'quick': quick, 'drivers': drivers,
                'progress': mock.create_autospec(steps.Progress,
                                                 instance=True)})
        return status, self.rows()

    def rows(self):
        return {row['name']: (row['value'], row['ok']) for row in json.loads(
            (self.directory / 'report.json').read_text())['rows']}

    def test_both_drivers_and_ours_at_once(self):
        self.output['dedup-1-without-agent'] = AGENTS, True
        status, _ = self.run_campaign('servers', 'without-agent', 'volume')
        self.assertEqual(0, status, self.printed.getvalue())
        self.assertEqual(
            ['stock-1', 'stock-1-without-ssh', 'dedup-1',
             'dedup-1-without-ssh', 'dedup-2', 'dedup-2-without-ssh',
             'dedup-1-without-agent'], [name for name, *_ in self.calls])
        self.assertEqual([1, 1, 1, 1, 2, 2, 1],
                         [number for _, _, number, _ in self.calls])
        self.assertEqual(
            [('stock', False, True), ('dedup', True, True)],
            [(one.drivers[0], one.controller, one.backups)
             for one in self.settings])
        self.assertEqual(tempest_tests.GROUPS['without-agent'],
                         self.calls[-1][1])
        self.assertEqual('compute2', self.calls[-1][3])
        self.assertNotIn(tempest_tests.GROUPS['without-agent'][0],
                         self.calls[2][1])

    def test_another_profile(self):
        self.run_campaign('servers', profile='shared', concurrencies=(1,))
        self.assertEqual({('shared', False)}, {
            (one.profile, one.backups) for one in self.settings})
        self.assertEqual(['stock-1', 'dedup-1'],
                         [name for name, *_ in self.calls])

    def test_only_at_once(self):
        self.run_campaign('servers', concurrencies=(2,), drivers=('dedup',))
        self.assertEqual([('dedup-2', 2)], [
            (name, number) for name, _, number, _ in self.calls])

    def test_one_driver(self):
        self.run_campaign('servers', drivers=('stock',))
        self.assertEqual([('stock-1', 1)], [
            (name, number) for name, _, number, _ in self.calls])

    def test_the_quick_form_is_one_run(self):
        self.output['dedup-1'] = PLUGIN, True
        status, _ = self.run_campaign('plugin', quick=True,
                                      concurrencies=(1,), drivers=('dedup',))
        self.assertEqual(0, status, self.printed.getvalue())
        self.assertEqual([('dedup-1', 1)], [
            (name, number) for name, _, number, _ in self.calls])
        self.assertFalse(self.settings[0].backups)

    def test_what_ended_before_the_limit_counts(self):
        self.output['stock-1'] = (SERVERS % ('a', 'ok')
                                  + SERVERS % ('b', 'FAILED')
                                  + SERVERS % ('c', '')), False
        status, rows = self.run_campaign('servers', concurrencies=(1,))
        self.assertEqual(1, status)
        value, ok = rows['Tempest, stock-1']
        self.assertIn('was stopped after', value)
        self.assertFalse(ok)
        self.assertEqual(('ended', True), rows['Tempest, dedup-1'])
        self.assertEqual(
            ('1 passed, 1 failed, 0 skipped', True),
            rows["servers, Nova's driver, one at a time"])

    def test_no_test_ran(self):
        self.output['dedup-1'] = 'Traceback\n', True
        status, rows = self.run_campaign('servers', concurrencies=(1,))
        self.assertEqual(1, status)
        self.assertIn('ran no test', rows['Tempest, dedup-1'][0])

    def test_a_lab_that_does_not_come_up_loses_nothing(self):
        def up(name, directory, settings, progress):
            if settings.drivers[0] == 'dedup':
                raise errors.LabError('no')
            return mock.MagicMock()

        tempest_run.up.up.side_effect = up
        self.assertRaises(errors.LabError, self.run_campaign, 'servers')
        rows = self.rows()
        self.assertEqual(('was broken off', False), rows['this command'])
        self.assertEqual(
            ('1 passed, 0 failed, 0 skipped', True),
            rows["servers, Nova's driver, one at a time"])
        self.assertIn('left out: ', self.printed.getvalue())

    def test_fails_with_ours_alone(self):
        self.output['dedup-2'] = SERVERS % ('a', 'FAILED'), True
        status, rows = self.run_campaign('servers')
        self.assertEqual(1, status)
        self.assertEqual((1, False), rows[
            "fails with our driver, 2 at a time and not with Nova's"])


class EndsWithinTest(unittest.TestCase):

    def test_ends(self):
        self.assertTrue(tempest_run.ends_within(60, ['true']))

    def test_all_that_it_started_ends(self):
        output, theirs = os.pipe()
        self.addCleanup(os.close, output)
        real = subprocess.Popen.wait

        def wait(process, timeout=None):
            if timeout is None:
                return real(process)
            # What it has started runs.
            self.assertEqual(b'\n', os.read(output, 1))
            raise subprocess.TimeoutExpired('sh', timeout)

        with mock.patch.object(subprocess.Popen, 'wait', wait):
            self.assertFalse(tempest_run.ends_within(
                60, ['sh', '-c', '(echo; exec tail -f /dev/null) & wait'],
                stdout=theirs))
        os.close(theirs)
        # It can be read when nobody has the other end any more.
        self.assertEqual([output], select.select([output], [], [], 60)[0])
        self.assertEqual(b'', os.read(output, 1))
