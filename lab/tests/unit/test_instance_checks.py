# SPDX-License-Identifier: Apache-2.0
"""What is left is told by what the lab shows, here a mocked one."""

import json
import subprocess
from unittest import mock

from guests.synthetic import console
from lab import client
from lab import cloud
from lab import faults
from lab import guest
from lab import instance_checks
from lab import settings
from lab.hosts import host
from nova_dedup_migrate.operations import operation
from nova_dedup_migrate.tests import base

UUID = '22222222-0000-4000-8000-000000000002'
LOST = '33333333-0000-4000-8000-000000000003'


class InstanceChecksCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cloud = mock.create_autospec(cloud.Cloud, instance=True)
        self.cloud.settings = settings.Settings(profile='local')
        self.cloud.computes = [self.make_host('compute1'),
                               self.make_host('compute2')]
        self.domains = {'compute1': [UUID], 'compute2': []}
        self.qemus = {'compute1': [mock.Mock(spec=[])], 'compute2': []}
        self.replace(faults, 'qemus',
                     side_effect=lambda one, uuid: self.qemus[one.name])
        self.server = mock.Mock(spec=['id', 'status', 'compute_host'],
                                id=UUID, status='ACTIVE',
                                compute_host='compute1')

    def replace(self, owner, name, **kwargs):
        patcher = mock.patch.object(owner, name, autospec=True, **kwargs)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def make_host(self, name):
        one = mock.create_autospec(host.Host, instance=True)
        one.name = name
        one.directory = one.root = self.temporary_dir() / name
        one.processes.return_value = []
        one.run.side_effect = lambda argv, **_: self.answer(name, argv)
        return one

    def answer(self, name, argv):
        out = {'list': '\n'.join(self.domains[name]),
               'domstate': 'running',
               'qemu-monitor-command': json.dumps(
                   {'return': {'source': {'state': self.state}}})}
        return subprocess.CompletedProcess(
            argv, 0, next(out[word] for word in argv if word in out), '')

    state = 'off'


class InstanceTest(InstanceChecksCase):

    def setUp(self):
        super().setUp()
        self.replace(guest, 'console')
        self.verify = self.replace(console, 'verify',
                                   return_value=(1 << 28, 0, ''))

    def wrong(self, survives=True):
        return list(instance_checks.failures(
            self.cloud, self.server, self.cloud.computes[0], survives))

    def test_right(self):
        self.assertEqual([], self.wrong())

    def test_it_runs_twice(self):
        self.qemus['compute2'] = self.qemus['compute1']
        self.assertEqual(['QEMUs: compute1 running, compute2 running'],
                         self.wrong())

    def test_it_runs_nowhere(self):
        self.qemus['compute1'] = []
        self.assertEqual(['QEMUs: none'], self.wrong())

    def test_it_runs_elsewhere(self):
        self.qemus = {'compute1': [], 'compute2': self.qemus['compute1']}
        self.assertEqual(['QEMUs: compute2 running'], self.wrong())

    def test_nova_is_wrong(self):
        self.server.status = 'ERROR'
        self.assertEqual(['its status in Nova is ERROR'], self.wrong())

    def test_wrong_memory(self):
        self.verify.return_value = (1 << 28, 3, 'page 7')
        self.assertEqual(['3 wrong pages of 256 MiB: page 7'], self.wrong())

    def test_armed(self):
        self.state = 'armed'
        self.assertEqual(['the source is still armed'], self.wrong())

    def test_shut_off(self):
        self.server.status = 'SHUTOFF'
        self.qemus['compute1'] = []
        self.assertEqual([], self.wrong(survives=False))
        self.server.status = 'ACTIVE'
        self.assertEqual(['its status in Nova is ACTIVE'],
                         self.wrong(survives=False))


class LeftTest(InstanceChecksCase):

    def setUp(self):
        super().setUp()
        patcher = mock.patch.object(instance_checks, '_LATER_S', -1)
        patcher.start()
        self.addCleanup(patcher.stop)
        self.allocations = {'compute1': [UUID], 'compute2': []}
        connection = self.replace(client, 'connect').return_value
        self.attachments = []
        connection.block_storage.attachments.side_effect = (
            lambda: iter(self.attachments))
        connection.compute.servers.return_value = [self.server]
        providers = []
        for name in self.allocations:
            providers.append(mock.Mock(spec=['id', 'name'], id=name))
            providers[-1].name = name
        connection.placement.resource_providers.return_value = providers
        connection.placement.get.side_effect = self.allocated

    def allocated(self, path):
        answer = mock.Mock(spec=['json'])
        answer.json.return_value = {'allocations': dict.fromkeys(
            self.allocations[path.split('/')[2]], {})}
        return answer

    def left(self, known=frozenset()):
        return sorted(instance_checks.leftovers(self.cloud, known))

    def write(self, path, text='{}'):
        path = self.cloud.computes[1].directory / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def test_nothing(self):
        self.assertEqual([], self.left())

    def test_domain(self):
        self.domains['compute2'] = [UUID]
        self.assertEqual(['compute2: domain ' + UUID], self.left())
        self.assertEqual([], self.left({'compute2: domain ' + UUID}))

    def test_process(self):
        self.replace(faults, 'command_line',
                     return_value=[b'/a/qemu-system-x86_64', b'-uuid'])
        self.cloud.computes[1].processes.return_value = [
            mock.Mock(spec=['pid'], pid=7)]
        self.assertEqual(['compute2: QEMU 7'], self.left())

    def test_operations(self):
        for name, phase in (('x', operation.RUNNING), ('y', operation.STUCK),
                            ('z', operation.ENDED)):
            self.write('var/lib/nova/dedup_migrate/operations/%s.json' % name,
                       json.dumps({'operation': {'phase': phase}}))
        self.assertEqual(['compute2: operation x is running',
                          'compute2: operation y is stuck'], self.left())

    def test_files(self):
        self.write('var/lib/nova/instances/%s/disk' % UUID)
        self.assertEqual(['compute2: files of ' + UUID], self.left())

    def test_allocations(self):
        self.allocations = {'compute1': [], 'compute2': [UUID, LOST]}
        self.assertEqual(['compute1: no allocation of instance ' + UUID,
                          'compute2: allocation of ' + LOST,
                          'compute2: allocation of instance ' + UUID],
                         self.left())

    def attach(self, volume, uuid, status='attached'):
        self.attachments.append(mock.Mock(
            spec=['volume_id', 'instance', 'status'], volume_id=volume,
            instance=uuid, status=status))

    def test_attachments(self):
        self.cloud.settings = settings.Settings(profile='volume')
        self.attach('v1', UUID)
        self.attach('v2', UUID)
        self.attach('v1', UUID, 'reserved')
        self.assertEqual([], self.left())
        self.attach('v2', UUID)
        self.attach('v3', LOST)
        self.assertEqual(
            ['volume v2: 2 attachments to instance ' + UUID,
             'volume v3: attached to ' + LOST], self.left())
