# SPDX-License-Identifier: Apache-2.0
"""Engines that are killed with SIGKILL: another one goes on.

Nova is never asked twice for the same migration, wherever it happens.
"""

import collections
import os
import signal
import subprocess
import sys
import threading

from nova_dedup_migrate.db import schema
from nova_dedup_migrate.tests.unit.engine import base

_CONF = '''\
[DEFAULT]
log_file = {directory}/engine.log
[database]
connection = {connection}
[engine]
interval = 0.1
lease_time = 3
submit_grace = 1
metrics_listen =
[openstack]
auth_type = password
auth_url = {url}/v3
username = dedup
password = x
project_name = service
user_domain_id = default
project_domain_id = default
region_name = RegionOne
'''


class KillTest(base.EngineTestCase):
    options = {**base.OPTIONS, 'engine_lease_time': 3.0}

    def setUp(self):
        super().setUp()
        with self.database.engine.begin() as connection:
            connection.exec_driver_sql(
                'CREATE TABLE alembic_version (version_num VARCHAR(32))')
            connection.exec_driver_sql(
                "INSERT INTO alembic_version VALUES ('%s')" % schema.head())
        directory = self.temporary_dir()
        conf = directory / 'controller.conf'
        conf.write_text(_CONF.format(
            directory=directory, url=self.openstack.url,
            connection=self.conf.database.connection))
        self.process = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-m',
             'nova_dedup_migrate.cmd.engine', '--config-file', str(conf)],
            stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(self.end)
        self.killed = threading.Event()

    def end(self):
        self.process.kill()
        self.process.wait(10)

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(10)
        self.killed.set()

    def another_goes_on(self, servers):
        """The engine is killed, then another one ends the drain."""
        self.drain()
        self.assertTrue(self.killed.wait(50), 'the engine was not killed')
        self.openstack.on_request = lambda how, path: None
        self.openstack.on_action = lambda server, action: None
        self.start()
        found = self.wait('drained')
        self.assertEqual(len(servers), found['counts']['moved'])
        self.assertTrue(found['safe_to_power_off'], found['conditions'])
        asked = collections.Counter(
            server for server, action in self.openstack.requests)
        self.assertEqual({one.id: 1 for one in servers}, asked)

    def test_before_nova_has_the_request(self):
        """submitting is written, and nothing has been sent."""
        servers = self.openstack.add('compute1', 2, seconds=0.2)

        def kill(server, action):
            self.kill()
            raise ConnectionError('the request was never sent')

        self.openstack.on_action = kill
        self.another_goes_on(servers)

    def test_before_it_has_the_answer(self):
        servers = self.openstack.add('compute1', 2, seconds=0.2)
        done = self.openstack._do_os_migrateLive

        def do(server):
            done(server)
            if not self.killed.is_set():
                self.kill()

        self.openstack._do_os_migrateLive = do
        self.another_goes_on(servers)

    def test_while_a_server_migrates(self):
        servers = self.openstack.add('compute1', 2, seconds=1.5)

        def kill(how, path):
            if self.openstack.requests and 'os-migrations' in path:
                if not self.killed.is_set():
                    self.kill()

        self.openstack.on_request = kill
        self.another_goes_on(servers)

    def test_while_the_service_is_disabled(self):
        servers = self.openstack.add('compute1', 2, seconds=0.2)

        def kill(how, path):
            if how == 'PUT' and not self.killed.is_set():
                self.kill()

        self.openstack.on_request = kill
        self.another_goes_on(servers)
