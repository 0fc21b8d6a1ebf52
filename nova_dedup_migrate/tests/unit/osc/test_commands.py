# SPDX-License-Identifier: Apache-2.0
"""Each command against the API over HTTP, with an engine."""

import io
import json
import sys
import threading
import tomllib
from unittest import mock
from wsgiref import simple_server

import openstack
from openstack import exceptions

from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.db import migrations as stored
from nova_dedup_migrate.engine import summary
from nova_dedup_migrate.osc import drains
from nova_dedup_migrate.osc import format as formats
from nova_dedup_migrate.osc import migrations
from nova_dedup_migrate.osc import plugin
from nova_dedup_migrate.osc import waiting
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.tests import base as tests_base
from nova_dedup_migrate.tests import controller
from nova_dedup_migrate.tests.unit.engine import base
from nova_dedup_migrate.tests.unit.reports import samples
import tests


class _Handler(simple_server.WSGIRequestHandler):
    def log_message(self, *arguments):
        pass


class CommandsTest(base.EngineTestCase):

    def setUp(self):
        super().setUp()
        server = simple_server.make_server('127.0.0.1', 0, self.application,
                                           handler_class=_Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.openstack.token = controller.ADMIN
        self.openstack.catalog['dedup-migrate'] = (
            'http://127.0.0.1:%d' % server.server_port)
        instance = mock.Mock(spec=['sdk_connection'])
        instance.sdk_connection = openstack.connect(
            load_yaml_config=False, load_envvars=False,
            auth_url=self.openstack.url + '/v3', username='u', password='p',
            project_name='p', user_domain_id='default',
            project_domain_id='default', region_name='RegionOne')
        self.addCleanup(instance.sdk_connection.close)
        self.proxy = plugin.make_client(instance)
        self.err = self.useFixture(
            tests_base.fixtures.StringStream('stderr')).stream
        self.useFixture(tests_base.fixtures.MonkeyPatch('sys.stderr',
                                                        self.err))

    def run_command(self, command, *arguments, status=0):
        """Return what a command prints as JSON."""
        app = mock.Mock()
        app.stdout = io.StringIO()
        app.stderr = sys.stderr
        app.client_manager.dedup_migrate = self.proxy
        made = command(app, None, cmd_name='test')
        if hasattr(made, 'formatter_default'):
            arguments += ('-f', 'json')
        parsed = made.get_parser('test').parse_args(list(arguments))
        self.assertEqual(status, made.run(parsed))
        text = app.stdout.getvalue()
        return json.loads(text) if text else None

    def put_report(self):
        made = samples.make()
        with self.database.write() as session:
            stored.put(session, summary.of_report(made, 1),
                       codec.encode(made))

    def test_migrations(self):
        self.put_report()
        found = self.run_command(migrations.ListMigrations, '--host',
                                 'compute1', '--long')
        self.assertEqual(samples.MIGRATION, found[0]['uuid'])
        self.assertEqual([], self.run_command(migrations.ListMigrations,
                                              '--state', 'failed'))
        found = self.run_command(migrations.ShowMigration,
                                 samples.MIGRATION)
        self.assertEqual('completed', found['state'])
        found = self.run_command(migrations.ShowReport, samples.MIGRATION)
        self.assertEqual(['One.', 'Two.'], found['plan']['explanation'])
        found = self.run_command(migrations.ListRounds, samples.MIGRATION)
        self.assertEqual(1, found[0]['number'])
        self.assertRaises(exceptions.NotFoundException, self.run_command,
                          migrations.ShowMigration, samples.INSTANCE)

    def test_hosts(self):
        with self.database.write() as session:
            hosts.put(session, 'compute1', {
                'patched': True, 'qemu_version': '10.0',
                'max_outbound': 5})
        found = self.run_command(migrations.SetHost, 'compute1',
                                 '--max-outbound', '3', '--link-rate', '9')
        self.assertEqual((3, 9e6), (found['slots']['effective'],
                                    found['link_rate_limit']))
        found = self.run_command(migrations.ListHosts)
        self.assertEqual('compute1', found[0]['name'])
        self.assertEqual(5, self.run_command(
            migrations.ShowHost, 'compute1')['slots']['nova'])
        self.assertEqual([], self.run_command(migrations.ListReplicas))

    def test_replicas(self):
        with self.database.write() as session:
            hosts.put(session, 'compute1', {'replicas': [samples.REPLICA]})
        for arguments, count in (((), 1), (('--host', 'compute1'), 1),
                                 (('--server', samples.INSTANCE), 1),
                                 (('--server', samples.MIGRATION), 0)):
            self.assertEqual(count, len(self.run_command(
                migrations.ListReplicas, *arguments)), arguments)
        (found,) = self.run_command(migrations.ListReplicas)
        self.assertEqual(('vda', 'done', 0.5), (
            found['disk'], found['state'], found['share']))

    def test_estimate(self):
        self.openstack.add('compute1', 2)
        self.start()
        found = self.run_command(migrations.CreateEstimate, '--host',
                                 'compute1', '--wait')
        self.assertEqual(2, len(found))
        self.run_command(migrations.CreateEstimate, '--host', 'nowhere',
                         '--wait', status=waiting.FAILED)

    def test_drain(self):
        self.openstack.add('compute1', 2, seconds=0.2,
                           name='\x1b[2J\u202e<b>')
        self.start()
        self.assertEqual(1, len(self.run_command(migrations.ListServices)))
        with mock.patch.object(waiting, 'INTERVAL', 0.1):
            found = self.run_command(drains.CreateDrain, 'compute1', '--id',
                                     base.ID, '--wait', '--max-parallel',
                                     '2', '--link-rate', '100')
        self.assertEqual(('drained', True, 1e8), (
            found['state'], found['safe_to_power_off'],
            found['link_rate']))
        self.assertEqual(base.ID, self.run_command(
            drains.ListDrains, '--host', 'compute1', '--long')[0]['id'])
        found = self.run_command(drains.ListServers, base.ID)
        self.assertEqual(['moved', 'moved'],
                         [one['state'] for one in found])
        self.assertGreater(len(self.run_command(drains.ListEvents,
                                                base.ID)), 3)
        self.run_command(drains.DeleteDrain, base.ID)
        self.assertRaises(exceptions.NotFoundException, self.run_command,
                          drains.ShowDrain, base.ID)

    def test_drain_that_needs_an_operator(self):
        server = self.openstack.add('compute1', status='ERROR')[0]
        self.start()
        found = self.run_command(drains.CreateDrain, 'compute1', '--wait',
                                 '--id', base.ID, status=waiting.PARTIAL)
        self.assertEqual('blocked', found['state'])
        self.run_command(drains.SetServer, base.ID, server.id, '--skip')
        self.run_command(drains.ShowDrain, base.ID)
        self.wait('partial')
        server.status = 'ACTIVE'
        self.run_command(drains.RetryDrain, base.ID, '--wait')

    def test_choices_of_a_drain(self):
        servers = self.openstack.add('compute1', 2, status='ERROR')
        self.start()
        self.run_command(
            drains.CreateDrain, 'compute1', '--id', base.ID, '--choice',
            servers[0].id + '=skip', '--on-blocked', 'wait', '--wait',
            status=waiting.PARTIAL)
        rows = self.rows()
        self.assertEqual(['skipped', 'blocked'],
                         [rows[one.id]['state'] for one in servers])
        for text in ('x', 'x=y', '=', servers[0].id):
            self.assertRaises(SystemExit, self.run_command,
                              drains.CreateDrain, 'compute1', '--choice',
                              text)

    def test_actions(self):
        self.openstack.add('compute1', 2, seconds=1000)
        self.run_command(drains.CreateDrain, 'compute1', '--id', base.ID)
        for command, wish in ((drains.PauseDrain, 'pause'),
                              (drains.ResumeDrain, 'run')):
            self.assertEqual(wish, self.run_command(
                command, base.ID)['requested'])
        found = self.run_command(drains.SetDrain, base.ID, '--deadline',
                                 '2027-01-01T00:00:00Z')
        self.assertTrue(found['deadline'].startswith('2027'))
        self.start()
        self.eventually(lambda: self.openstack.requests, 'a request')
        self.run_command(drains.CancelDrain, base.ID, '--in-flight',
                         'abort')
        self.run_command(drains.ShowDrain, base.ID, '--wait',
                         status=waiting.FAILED)

    def test_interrupted(self):
        self.run_command(drains.CreateDrain, 'compute1', '--id', base.ID)
        with mock.patch.object(waiting, 'time', autospec=True) as time:
            time.sleep.side_effect = KeyboardInterrupt
            self.run_command(drains.ShowDrain, base.ID, '--wait',
                             status=waiting.DETACHED)


class PlainTest(tests_base.TestCase):

    def test_each_command_is_an_entry_point(self):
        found = tomllib.loads((tests.TOP / 'pyproject.toml').read_text())
        values = found['project']['entry-points'][
            'openstack.dedup_migrate.v1'].values()
        there = {'%s:%s' % (module.__name__, name)
                 for module in (drains, migrations)
                 for name, value in vars(module).items()
                 if isinstance(value, type) and not name.startswith('_')
                 and value.__module__ == module.__name__}
        self.assertEqual(there, set(values))

    def test_hostile_names(self):
        self.assertEqual('?[2J?<b>', formats.clean('\x1b[2J\u202e<b>'))

    def test_progress_on_a_terminal(self):
        out = mock.create_autospec(io.StringIO, instance=True)
        out.isatty.return_value = True
        progress = waiting.Progress(out)
        progress.show('one')
        progress.show('one')
        progress.show('two')
        progress.end()
        self.assertEqual(['\r\x1b[Kone', '\r\x1b[Ktwo', '\n'],
                         [call.args[0] for call in
                          out.write.call_args_list])
