# SPDX-License-Identifier: Apache-2.0
"""The programs that have an engine, as their configuration file has it."""

import pathlib
import subprocess
import sys

from nova_dedup_migrate.db import errors
from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.db import schema
from nova_dedup_migrate.tests import controller

_CONF = '''\
[DEFAULT]
%s
[database]
connection = sqlite:///%s
[engine]
metrics_listen =
[keystone_authtoken]
auth_type = none
[openstack]
auth_type = password
auth_url = http://127.0.0.1:1/v3
username = dedup
password = x
project_name = service
user_domain_id = default
project_domain_id = default
region_name = RegionOne
'''
_TOP = pathlib.Path(__file__).parents[4]
#: Runs a program; meanwhile an agent on its bus reports a host.
_PROGRAM = '''\
import os, signal, sys, threading, time
from oslo_config import cfg
from nova_dedup_migrate.cmd import engine, main
from nova_dedup_migrate.rpc import engine_api, errors, objects, transport

def report():
    end = time.monotonic() + 30
    try:
        while time.monotonic() < end:
            time.sleep(0.2)
            if getattr(cfg.CONF, 'transport_url', None) != 'fake://':
                continue
            try:
                bus = transport.get_transport(cfg.CONF)
                engine_api.EngineAPI(bus).put_host(objects.DedupHostReport(
                    host='compute1', patched=True, max_outbound=1,
                    options=objects.DedupMigrationOptions(
                        strategy='auto', downtime_ms=500.0,
                        downtime_steps=10, downtime_delay=75.0,
                        adapt_downtime_limit=True,
                        max_extra_downtime_ms=50.0, min_gain=0.05,
                        post_copy=False, auto_converge=False,
                        timeout_per_gb=800.0, force_complete=False),
                    guests=[], waiting_reports=0))
                break
            except Exception as error:
                print(error, file=sys.stderr)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)

if sys.argv[1] == 'report':
    threading.Thread(target=report).start()
else:
    threading.Timer(3, os.kill, (os.getpid(), signal.SIGTERM)).start()
sys.exit(eval(sys.argv[2])(sys.argv[3:]))
'''


class TestPrograms(controller.ControllerTestCase):

    def run_program(self, program, *lines, agent='report', words=()):
        """Run one until an agent has reported, or for three seconds.

        Nothing of OpenStack is there but the bus.
        """
        self.database.close()
        database = pathlib.Path(
            self.conf.database.connection.removeprefix('sqlite:///'))
        database.unlink()
        schema.sync(self.database)
        path = self.temporary_dir() / 'nova-dedup-migrate.conf'
        path.write_text(_CONF % ('\n'.join(lines), database))
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', _PROGRAM, agent, program,
             '--config-file', str(path), *words], cwd=_TOP, timeout=120,
            capture_output=True, text=True, check=False)
        self.assertEqual(0, done.returncode, done.stderr)

    def host(self):
        with self.database.read() as session:
            return hosts.get(session, 'compute1')

    def test_agents_reach_an_engine(self):
        self.run_program('engine.main', 'transport_url = fake://')
        self.assertTrue(self.host()['facts']['patched'])

    def test_agents_reach_serve(self):
        self.run_program('main.main', 'transport_url = fake://',
                         words=('serve', '--port', '0'))
        self.assertTrue(self.host()['facts']['patched'])

    def test_without_a_bus(self):
        self.run_program('engine.main', agent='none')
        self.assertRaises(errors.NotFound, self.host)
