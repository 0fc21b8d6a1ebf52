# SPDX-License-Identifier: Apache-2.0
"""The agent put together, and its command."""

import importlib.util
import os
import signal
import threading
from unittest import mock

from oslo_config import cfg
from oslo_config import fixture as config_fixture
import oslo_messaging as messaging
from oslo_messaging import conffixture

from nova_dedup_migrate.conf import agent as agent_options
from nova_dedup_migrate.conf import dedup_migrate as options
from nova_dedup_migrate.conf import nova as nova_options
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import survey_objects
from nova_dedup_migrate.rpc import transport
from nova_dedup_migrate.tests import base

if importlib.util.find_spec('libvirt') is not None:
    import libvirt

    from nova_dedup_migrate.agent import local
    from nova_dedup_migrate.agent import service
    from nova_dedup_migrate.cmd import agent as command
    from nova_dedup_migrate.hypervisor import libvirt_host
else:
    service = None

UUID = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'


class ServiceCase(base.TestCase):
    def setUp(self):
        super().setUp()
        if service is None:
            self.skipTest('libvirt-python is not installed')
        self.fixture = self.useFixture(config_fixture.Config(
            cfg.ConfigOpts()))
        self.conf = self.fixture.conf
        self.useFixture(conffixture.ConfFixture(self.conf, 'fake://'))
        for module in (options, agent_options, nova_options):
            module.register_opts(self.conf)
        self.fixture.config(host='compute2', my_ip='127.0.0.1',
                            state_path='/var/lib/nova')
        directory = str(self.temporary_dir())
        self.fixture.config(group='dedup_migrate', index_path=directory,
                            journals_path=directory,
                            replicas_path=directory)
        patcher = mock.patch.object(local, 'LocalLibvirt', autospec=True)
        self.libvirt = patcher.start()
        self.libvirt.return_value.emulators.return_value = []
        self.libvirt.return_value.host = mock.create_autospec(
            libvirt_host.LibvirtHost, instance=True)
        self.libvirt.return_value.host.connection = mock.create_autospec(
            libvirt.virConnect, instance=True)
        self.addCleanup(patcher.stop)


class ServiceTest(ServiceCase):
    def serve(self):
        bus = transport.get_transport(self.conf)
        self.addCleanup(bus.cleanup)
        agent = service.AgentService(self.conf, bus, '1.2')
        agent.start()
        self.addCleanup(agent.stop)
        return api.AgentAPI(bus, 20.0)

    def ask(self, client):
        return client.facts({}, 'compute2', objects.DedupFactsRequest(
            instance_uuid=UUID, migration_uuid=UUID))

    def test_answers(self):
        self.libvirt.return_value.emulators.side_effect = (
            errors.HypervisorUnavailable(uri='x', reason='it is away'))
        reply = self.ask(self.serve())
        self.assertEqual(('compute2', '1.2', False),
                         (reply.host, reply.release, reply.patched))
        self.assertIn('it is away', reply.reason)

    def test_events_arrive(self):
        client = self.serve()
        self.ask(client)
        _, on_event = self.libvirt.call_args.args
        on_event(UUID, 'X_DEDUP_INCOMING_DONE', {'info': {'reads': 4}})
        self.assertEqual(4, client.incoming({}, 'compute2', UUID,
                                            UUID).reads)

    def test_survey(self):
        """No guest, and no link while libvirt says that one migrates."""
        host = self.libvirt.return_value.host
        host.domain.side_effect = errors.GuestNotRunning(name=UUID)
        self.libvirt.return_value.is_busy.return_value = True
        reply = self.serve().survey({}, 'compute2',
                                    survey_objects.DedupSurveyRequest(
                                        instance_uuid=UUID, max_age=60.0,
                                        destination='compute3'))
        self.assertEqual((False, None), (reply.known, reply.link_rate))
        self.assertIn('no running process', reply.reason)
        self.assertIn('under way', reply.link_reason)

    def test_forget_guest(self):
        """What facts() announces is what may be undefined."""
        client = self.serve()
        self.ask(client)
        error = self.assertRaises(
            rpc_errors.AgentRefused, client.forget_guest, {}, 'compute2',
            UUID, UUID.replace('0a', '1a'))
        self.assertIn('the last one that was announced is ' + UUID,
                      error.reason)
        self.libvirt.return_value.host.domain.assert_not_called()

    def test_sweeps(self):
        self.fixture.config(group='dedup_migrate', survey_interval=0.001)
        connection = self.libvirt.return_value.host.connection
        connection.listAllDomains.return_value = []
        self.serve()
        self.eventually(lambda: connection.listAllDomains.call_count > 1,
                        'guests are looked for')

    def test_migration_address(self):
        self.fixture.config(group='libvirt',
                            live_migration_inbound_addr='127.0.0.1')
        self.fixture.config(group='dedup_migrate', probe_port_min=0,
                            probe_port_max=0)
        self.libvirt.return_value.is_busy.return_value = False
        offer = self.serve().link_probe(
            {}, 'compute2', objects.DedupLinkRequest(
                source='compute1', seconds=0.01, bytes=1))
        self.assertEqual('127.0.0.1', offer.address)

    def test_stop_while_the_bus_is_away(self):
        away = threading.Event()
        self.addCleanup(away.set)
        with mock.patch.object(transport, 'get_server',
                               autospec=True) as get_server:
            get_server.return_value = mock.create_autospec(
                messaging.rpc.server.RPCServer, instance=True)
            get_server.return_value.start.side_effect = (
                lambda: away.wait(30))
            agent = service.AgentService(self.conf, None, '1.2')
            agent.start()
            agent.stop()
            get_server.return_value.stop.assert_not_called()
        self.libvirt.return_value.stop.assert_called_once_with()


class DirectoriesTest(ServiceCase):
    def test_of_nova(self):
        self.assertEqual(('/var/lib/nova/instances', '/var/lib/nova/mnt'),
                         service.image_directories(self.conf))

    def test_of_the_operator(self):
        self.fixture.config(group='dedup_migrate',
                            image_directories=['/srv/a', '/srv/b'])
        self.assertEqual(('/var/lib/nova/instances', '/srv/a', '/srv/b',
                          '/var/lib/nova/mnt'),
                         service.image_directories(self.conf))


class CommandTest(ServiceCase):
    def test_signals(self):
        before = {number: signal.getsignal(number) for number in
                  (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
        self.addCleanup(lambda: [signal.signal(*each)
                                 for each in before.items()])
        config = self.temporary_dir() / 'nova.conf'
        config.write_text('[DEFAULT]\ntransport_url = fake://\n'
                          'host = compute7\n')
        with mock.patch.object(command.service, 'AgentService',
                               autospec=True) as agent, \
                mock.patch.object(command.cfg, 'CONF', self.conf), \
                mock.patch.object(command.log, 'setup', autospec=True), \
                mock.patch.object(self.conf, 'mutate_config_files',
                                  autospec=True) as mutate:
            def start():
                os.kill(os.getpid(), signal.SIGHUP)
                os.kill(os.getpid(), signal.SIGTERM)

            agent.return_value.start.side_effect = start
            self.assertEqual(0, command.main(['--config-file',
                                              str(config)]))
        mutate.assert_called_once_with()
        agent.return_value.stop.assert_called_once_with()

    def test_nova_conf(self):
        conf = cfg.ConfigOpts()
        config = self.temporary_dir() / 'nova.conf'
        config.write_text('[DEFAULT]\nhost = compute7\nstate_path = /s\n'
                          '[libvirt]\nrbd_user = cinder\n'
                          '[dedup_migrate]\nprobe_port_min = 7\n')
        with mock.patch.object(command.log, 'setup', autospec=True):
            command.configure(conf, ['--config-file', str(config)], '1.2')
        self.assertEqual(('compute7', '/s/instances', 'cinder', 7),
                         (conf.host, conf.instances_path,
                          conf.libvirt.rbd_user,
                          conf.dedup_migrate.probe_port_min))
