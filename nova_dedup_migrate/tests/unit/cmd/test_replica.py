# SPDX-License-Identifier: Apache-2.0
"""The commands that prepare live migrations."""

import contextlib
import importlib.util
import io
import json
import unittest
from unittest import mock

if importlib.util.find_spec('libvirt') is None:
    raise unittest.SkipTest('libvirt-python is not installed')

from nova_dedup_migrate.cmd import agents
from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.cmd import replica
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.tests import base

INSTANCE = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
IMAGE = '33333333-0000-4000-8000-000000000003'
DISK = '''<disk type="file" device="disk"><source file="/i/%s"/>%s
<target dev="%s"/><alias name="virtio-disk-%s"/></disk>'''
DOMAIN = '''<domain><metadata>
<nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
<nova:owner><nova:project uuid="p1">admin</nova:project></nova:owner>
<nova:root type="image" uuid="%s"/></nova:instance></metadata>
<devices>%s</devices></domain>''' % (IMAGE, ''.join((
    DISK % ('vda', '', 'vda', 'vda'),
    DISK % ('vdb', '<shareable/>', 'vdb', 'vdb'),
    DISK % ('vdc', '', 'vdc', 'vdc'))))


class ReplicaTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.conf = self.temporary_dir() / 'nova.conf'
        self.conf.write_text('[DEFAULT]\ntransport_url = fake://\n'
                             'host = compute1\n')
        self.api = mock.create_autospec(api.AgentAPI, instance=True)
        self.api.watch_disk.return_value = watch_objects.DedupWatchReply(
            state='watching', size=1 << 30, granularity=65536,
            watch='0' * 64, data=1 << 20)
        self.api.prepare_disk.return_value = (
            disk_objects.DedupFillingReply(state='running'))
        self.api.filling.return_value = disk_objects.DedupFillingReply(
            state='done', done=5, total=5)
        patcher = mock.patch.object(replica.time, 'sleep', autospec=True)
        self.sleep = patcher.start()
        self.addCleanup(patcher.stop)
        for target, name, value in (
                (agents.rpc_api.AgentAPI, 'from_conf', self.api),
                (agents, 'domain_xml', DOMAIN)):
            patcher = mock.patch.object(target, name, autospec=True,
                                        return_value=value)
            patcher.start()
            self.addCleanup(patcher.stop)

    def run_command(self, *arguments, status=0):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            self.assertEqual(status, main.main(
                ['--config-file', str(self.conf), *arguments]),
                err.getvalue())
        return err.getvalue() if status else out.getvalue()

    def test_prepare(self):
        """Each disk that no other instance may write to."""
        self.run_command('prepare', INSTANCE, '--host', 'compute2',
                         '--lease', '2')
        self.assertEqual(['vda', 'vdc'], [
            call.args[2].target
            for call in self.api.watch_disk.call_args_list])
        host, request = self.api.prepare_disk.call_args_list[0].args[1:]
        self.assertEqual(('compute2', 'compute1', 'p1', 7200.0, 1 << 20), (
            host, request.fill.source, request.fill.project_id,
            request.lease, request.data))
        self.assertTrue(request.fill.source_blocks)
        self.assertEqual([IMAGE], request.fill.images)
        preparation = request.fill.migration_uuid
        self.assertNotEqual(preparation, self.api.prepare_disk
                            .call_args_list[1].args[2].fill.migration_uuid)
        # the replicas are kept current
        self.api.forget_disks.assert_not_called()
        self.api.abort_filling.assert_not_called()

    def test_fails(self):
        self.api.filling.return_value = disk_objects.DedupFillingReply(
            state='failed', reason='no space')
        self.assertIn('disk vda on host compute2: no space',
                      self.run_command('prepare', INSTANCE, '--host',
                                       'compute2', status=1))
        self.api.forget_disks.assert_called_once()

    def test_agents_are_restarted(self):
        """The replica is continued, with a watch that QEMU has begun anew."""
        done = self.api.filling.return_value
        self.api.filling.side_effect = [
            errors.AgentUnavailable('compute2', 'no answer'),
            disk_objects.DedupFillingReply(state='unknown', reason='restart'),
            done, done]
        self.run_command('prepare', INSTANCE, '--host', 'compute2')
        self.assertEqual(['vda', 'vda', 'vda', 'vdc'], [
            call.args[2].target
            for call in self.api.watch_disk.call_args_list])
        self.assertEqual(2, self.sleep.call_count)

    def test_refused(self):
        self.api.prepare_disk.side_effect = errors.AgentRefused(
            'compute2', 'no room', 'FillRefused')
        self.assertIn('no room', self.run_command(
            'prepare', INSTANCE, '--host', 'compute2', status=1))
        self.sleep.assert_not_called()

    def test_interrupted(self):
        """Nothing goes on behind the user's back."""
        self.api.filling.side_effect = KeyboardInterrupt
        with contextlib.suppress(KeyboardInterrupt):
            self.run_command('prepare', INSTANCE, '--host', 'compute2',
                             status=130)
        self.api.abort_filling.assert_called_once()
        self.api.forget_disks.assert_called_once()

    def test_no_agent(self):
        self.api.watch_disk.side_effect = errors.AgentUnavailable(
            'compute1', 'it is away')
        self.assertIn('it is away', self.run_command(
            'prepare', INSTANCE, '--host', 'compute2', status=1))

    def test_not_of_nova(self):
        self.assertRaises(ValueError, replica.guest, '<domain/>')

    def test_not_of_an_image(self):
        for kind in 'volume', 'none':
            self.assertEqual([], replica.guest(DOMAIN.replace(
                '"image"', '"%s"' % kind)).images)

    def test_list(self):
        self.api.list_replicas.return_value = replica_objects.DedupReplicas(
            replicas=[replica_objects.DedupReplica(
                instance_uuid=INSTANCE, target='vda', project_id='p1',
                source='compute1', state='running', done=1, total=4,
                size=100, allocated=50, expires=0.0)])
        row, = json.loads(self.run_command('replica', 'list', '--host',
                                           'compute2', '-f', 'json'))
        self.assertEqual((INSTANCE, 'vda', 0.25, 50), (
            row['instance'], row['disk'], row['done'], row['allocated']))
        self.api.list_replicas.assert_called_once_with({}, 'compute2')

    def test_cancel(self):
        self.api.cancel_replicas.return_value = 2
        self.run_command('replica', 'cancel', INSTANCE)
        self.api.cancel_replicas.assert_called_once_with({}, 'compute1',
                                                         INSTANCE)
        self.api.cancel_replicas.return_value = 0
        self.assertIn('has no replica', self.run_command(
            'replica', 'cancel', INSTANCE, status=1))
