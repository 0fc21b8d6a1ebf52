# SPDX-License-Identifier: Apache-2.0
"""The cloud behind Horizon in make dashboard-check.

Keystone, Nova and Placement are emulated, and so are the agents.  The
controller is the real one, "nova-dedup-migrate serve" in a process of its
own, with Keystone's middleware, policies and a database.
"""

import os
import pathlib
import subprocess
import sys
import time
import urllib.request

from benchmarks import controller
from benchmarks.dashboard import agents
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import schema
from testkit import openstack_users

_TOP = pathlib.Path(__file__).resolve().parents[2]
#: What a hostile tenant calls a server: markup, handlers, Angular.
HOSTILE = ('"><script>document.title="hacked"</script>'
           '<img src=x onerror="document.title=\'hacked\'">'
           '{$constructor.constructor("document.title=\'hacked\'")()$}')
#: Horizon lets the auditor see all, the controller lets him change nothing.
USERS = {'dedup': ('admin', 'service'), 'root': ('admin', 'operator'),
         'auditor': ('admin',), 'alice': ('member', 'reader')}
_POLICIES = ('drains:create', 'drains:update', 'estimates:create',
             'estimates:create:host')
_GPU = {'pci_passthrough:alias': 'gpu:1'}
_CONFIGURATION = """
[DEFAULT]
log_file = {directory}/controller.log
debug = false
[database]
connection = {connection}
[oslo_policy]
policy_file = {directory}/policy.yaml
[engine]
interval = 0.5
recheck_interval = 2
retry_delay = 1
max_outbound = 2
agent_timeout = 8
lease_time = 20
metrics_listen =
[keystone_authtoken]
www_authenticate_uri = {url}
# A token that is revoked is refused at once.
token_cache_time = -1
{account}
[openstack]
region_name = RegionOne
{account}
"""
#: The API without an engine.
_API = ('import sys; from nova_dedup_migrate.cmd import controller, serve; '
        'from nova_dedup_migrate.api import wsgi; '
        'from oslo_config import cfg; '
        'serve.make_server("127.0.0.1", int(sys.argv[1]), '
        'wsgi.init_application(controller.configure('
        'cfg.CONF, ["--config-file", sys.argv[2]], "api"))).serve_forever()')
_ACCOUNT = """auth_type = password
auth_url = {url}/v3
username = dedup
password = x
project_name = service
user_domain_id = default
project_domain_id = default
"""


class World:
    """:param directory: for database, configuration and logs
    :param port: of the controller
    """

    def __init__(self, directory, port):
        self.directory = pathlib.Path(directory)
        self.port = port
        self.cloud = openstack_users.OpenStack(hosts=4)
        self.cloud.users = dict(USERS)
        # The documentation has no version in it, either.
        self.cloud.catalog['dedup-migrate'] = 'http://127.0.0.1:%d' % port
        self.process = None
        self.names = {}

    def start(self):
        self.cloud.start()
        self._fill()
        connection = 'sqlite:///%s/controller.sqlite' % self.directory
        url = self.cloud.url
        (self.directory / 'controller.conf').write_text(
            _CONFIGURATION.format(
                directory=self.directory, connection=connection, url=url,
                account=_ACCOUNT.format(url=url)))
        (self.directory / 'policy.yaml').write_text(''.join(
            '"dedup_migrate:%s": "role:admin and role:operator"\n' % name
            for name in _POLICIES))
        self._database = facade.Database(
            controller.configuration(connection, url))
        schema.sync(self._database)
        self._agents = agents.Agents(self.cloud, self._database,
                                     silent=('compute4',),
                                     stock=('compute4',))
        self._agents.start()
        self.start_controller()

    def stop(self):
        self.stop_controller()
        self._agents.stop()
        self._database.close()
        self.cloud.stop()

    def _fill(self):
        cloud = self.cloud
        cloud.slots = 2
        for host, name, fields in (
                ('compute1', 'web-1', {'ram': 4096, 'seconds': 14.0}),
                ('compute1', 'web-2', {'ram': 4096, 'seconds': 14.0}),
                ('compute1', 'db-1', {'ram': 16384, 'seconds': 24.0}),
                ('compute1', 'cache-1', {'ram': 2048, 'seconds': 10.0,
                                         'fails': 1}),
                ('compute1', HOSTILE, {'ram': 1024, 'seconds': 8.0}),
                ('compute1', 'gpu-1', {'ram': 4096, 'seconds': 8.0,
                                       'extra_specs': _GPU}),
                ('compute2', 'mail-1', {'ram': 8191, 'seconds': 30.0}),
                ('compute2', 'mail-2', {'ram': 4096, 'seconds': 30.0}),
                ('compute2', 'gpu-2', {'ram': 2048, 'extra_specs': _GPU}),
                ('compute2', 'gpu-3', {'ram': 2048, 'extra_specs': _GPU}),
                ('compute3', 'build-1', {'ram': 2048, 'seconds': 8.0})):
            made, = cloud.add(host, name=name, project_id='p', **fields)
            self.names[name] = made.id

    def start_controller(self, engine=True):
        """:param engine: with an engine, else the API alone"""
        file, port = str(self.directory / 'controller.conf'), str(self.port)
        self.process = subprocess.Popen(
            [sys.executable, *(
                ('-m', 'nova_dedup_migrate.cmd.main', 'serve',
                 '--config-file', file, '--port', port)
                if engine else ('-c', _API, port, file))],
            cwd=_TOP, stdin=subprocess.DEVNULL,
            stdout=(self.directory / 'controller.out').open('ab'),
            stderr=subprocess.STDOUT,
            env={**os.environ, 'PYTHONPATH': str(_TOP)})
        end = time.monotonic() + 300
        while True:
            try:
                urllib.request.urlopen(
                    'http://127.0.0.1:%d/healthcheck' % self.port).close()
                return
            except OSError:
                if (self.process.poll() is not None
                        or time.monotonic() > end):
                    raise RuntimeError(
                        'the controller does not start; see %s/controller.*'
                        % self.directory) from None
                time.sleep(0.2)

    def stop_controller(self):
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def obey(self, command):
        """Do what the driver requests; return what it wants to know."""
        word, _, rest = command.partition(' ')
        if word == 'stop':
            self.stop_controller()
        elif word == 'start':
            self.start_controller()
        elif word == 'engine-away':
            self.stop_controller()
            self.start_controller(engine=False)
        elif word == 'restart':
            self.stop_controller()
            self.start_controller()
        elif word == 'revoke':
            del self.cloud.users[rest]
        elif word == 'restore':
            self.cloud.users[rest] = USERS[rest]
        elif word in ('hold', 'release'):
            # The states that are looked at do not depend on how fast
            # this machine is.
            self.cloud.held = word == 'hold'
        elif word == 'name':
            return rest.replace('HOSTILE', HOSTILE)
        elif word == 'id':
            return self.names[rest.replace('HOSTILE', HOSTILE)]
        elif word == 'host':
            return self.cloud.servers[self.names[rest]].host
        elif word == 'service':
            return self.cloud.hosts[rest]['status']
        elif word == 'requests':
            return str(sum(
                (self.names[rest], 'live-migration') == one
                for one in self.cloud.requests))
        else:
            raise ValueError(command)
        return ''
