# SPDX-License-Identifier: Apache-2.0
"""The command that estimates downtimes."""

import contextlib
import importlib.util
import io
import json
import unittest
from unittest import mock

if importlib.util.find_spec('libvirt') is None:
    raise unittest.SkipTest('libvirt-python is not installed')

from nova_dedup_migrate.cmd import agents
from nova_dedup_migrate.cmd import estimate
from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import digests
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import sampling
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.rpc import survey_objects
from nova_dedup_migrate.tests import base

INSTANCE = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
MIB = 1 << 20


class EstimateTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = self.temporary_dir() / 'nova.conf'
        self.conf.write_text('[DEFAULT]\nhost = compute1\n')
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.looks = mock.Mock(side_effect=errors.DedupNotSupported(
            name='x'))
        self.guest.page_digests.side_effect = self.looks
        # 10 MiB again and again
        self.guest.dirty_rate.side_effect = lambda seconds: (
            10 * MIB // seconds)
        self.guest.memory_in_use.return_value = mock.create_autospec(
            sampling.InUse, instance=True, bytes=1000 * MIB)
        patcher = mock.patch.object(
            agents, 'local_guest', autospec=True,
            side_effect=lambda conf, uuid: contextlib.nullcontext(
                self.guest))
        self.local = patcher.start()
        self.addCleanup(patcher.stop)

    def run_command(self, *arguments, status=0):
        out, self.err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(self.err):
            self.assertEqual(status, main.main(
                ['--config-file', str(self.conf), 'estimate', *arguments]),
                self.err.getvalue())
        return out.getvalue()

    def rows(self, *arguments):
        return json.loads(self.run_command(INSTANCE, '-f', 'json',
                                           *arguments))

    def test_defaults(self):
        found = self.rows()
        self.assertEqual([True, True],
                         [row['converges'] for row in found[1:]])
        self.assertEqual(1, found[2]['rounds'])
        self.assertEqual([mock.call(1), mock.call(10), mock.call(60)],
                         self.guest.dirty_rate.call_args_list)
        self.assertIn('written to in 10 s: 15.7 MB', self.err.getvalue())
        self.assertEqual(INSTANCE, self.local.call_args.args[1])

    def test_given(self):
        found, = self.rows('--bandwidth', '8', '--downtime', '100',
                           '--windows', '10,1')
        self.assertFalse(found['converges'])
        self.assertGreater(found['downtime'], 1000)
        self.assertEqual([mock.call(1), mock.call(10)],
                         self.guest.dirty_rate.call_args_list)

    def test_patched_qemu(self):
        """All windows begin together, and QEMU measures no dirty rate."""
        pages = 1000 * MIB // 4096
        self.looks.side_effect = [
            digests.PageDigests(pages, first + 4096 * b'same')
            for first in (4096 * b'then', 4096 * b'then',
                          40 * b'new!' + 4056 * b'then',
                          4096 * b'new!')]
        slept = []
        with mock.patch.object(digests.time, 'monotonic',
                               lambda: sum(slept)), \
                mock.patch.object(digests.time, 'sleep', slept.append):
            found = self.rows()
        self.assertEqual([1, 9, 50], slept)
        for text in 'in 1 s: 0 B', 'in 10 s: 5.1 MB', 'in 60 s: 524 MB':
            self.assertIn('written to ' + text, self.err.getvalue())
        self.assertTrue(found[2]['converges'])
        self.guest.dirty_rate.assert_not_called()
        self.assertEqual(1, len({call.args for call in
                                 self.looks.call_args_list}))

    @contextlib.contextmanager
    def kept(self, **reply):
        api = mock.create_autospec(rpc_api.AgentAPI, instance=True)
        api.survey.return_value = survey_objects.DedupSurveyReply(**reply)
        with mock.patch.object(
                agents, 'open_agents', autospec=True,
                side_effect=lambda options: contextlib.nullcontext(
                    (api, mock.Mock(host='compute1')))):
            yield api

    def test_what_the_agent_knows(self):
        windows = [survey_objects.DedupWrittenIn(
            seconds=seconds, bytes=size, most=most, age=30.0)
            for seconds, size, most in ((1.0, 5e6, 6e6), (10.0, 20e6, 20e6))]
        with self.kept(known=True, windows=windows) as api:
            found = self.rows('--kept')
            self.assertEqual('compute1', api.survey.call_args.args[1])
        self.assertEqual(3, len(found))
        self.assertTrue(found[2]['converges'])
        self.assertIn('in 1 s: 5 MB, 6 MB at most, 30 s ago',
                      self.err.getvalue())
        self.looks.assert_not_called()
        self.guest.dirty_rate.assert_not_called()

    def test_the_agent_knows_nothing(self):
        for reply, expected in (({'known': True}, 'without --kept'),
                                ({'known': False, 'reason': 'It is away'},
                                 'It is away')):
            with self.kept(**reply):
                self.run_command(INSTANCE, '--kept', status=1)
            self.assertIn(expected, self.err.getvalue())

    def test_no_agent(self):
        with self.kept(known=True) as api:
            api.survey.side_effect = rpc_errors.AgentUnavailable(
                host='compute1', reason='no answer')
            self.run_command(INSTANCE, '--kept', status=1)
        self.assertIn('no answer', self.err.getvalue())

    def test_stock_qemu(self):
        self.guest.memory_in_use.side_effect = errors.DedupNotSupported(
            name='x')
        patcher = mock.patch.object(
            estimate.memory, 'ranges', autospec=True,
            return_value=[mock.Mock(size=2000 * MIB)])
        patcher.start()
        self.addCleanup(patcher.stop)
        self.assertGreaterEqual(self.rows()[0]['bytes'], 2000 * MIB)

    def test_measuring_fails(self):
        self.guest.dirty_rate.side_effect = errors.QmpTimeout(
            command='calc-dirty-rate', seconds=5)
        self.run_command(INSTANCE, status=1)
        self.assertIn('is not measured', self.err.getvalue())

    def test_wrong_arguments(self):
        for wrong in (['--bandwidth', '0'], ['--windows', '0,1'],
                      ['--windows', '61'], ['--downtime', 'x']):
            with contextlib.suppress(SystemExit):
                self.run_command(INSTANCE, *wrong, status=2)
                self.fail(wrong)
        self.guest.dirty_rate.assert_not_called()
