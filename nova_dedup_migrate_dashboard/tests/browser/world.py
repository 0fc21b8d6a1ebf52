# SPDX-License-Identifier: Apache-2.0
"""A controller with its API and engine, and an emulated cloud behind it.

Keystone, Nova and Placement are emulated; the controller is the real one.
Prints the URL of Keystone when it serves, and runs until its standard input
ends.  Lines of the input are commands: ``api off``, ``api on``,
``reader`` and ``admin`` (what the next token is for).
"""

import sys
import threading
import uuid

from nova_dedup_migrate.api import deploy
from nova_dedup_migrate.cmd import serve
from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.db import migrations
from nova_dedup_migrate.engine import cloud
from nova_dedup_migrate.engine import service
from nova_dedup_migrate.engine import summary
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.tests import controller
from nova_dedup_migrate.tests.unit.engine import base
from nova_dedup_migrate.tests.unit.reports import samples
from testkit import openstack

#: What a hostile user calls his server.
NAME = '<script>document.title="hacked"</script>'
_OPTIONS = {'engine_interval': 0.2, 'engine_recheck_interval': 1.0,
            'engine_metrics_listen': ''}
_READER = 'alice:p:reader'


class World(controller.ControllerTestCase):
    """The parts, with the means of a test case to clean up after them."""

    options = _OPTIONS
    timeout = 3600

    def runTest(self):
        cloud_ = openstack.OpenStack()
        cloud_.slots = 2
        cloud_.token = controller.ADMIN
        names = ('web-1', 'web-2', 'db-1', 'cache-1', NAME)
        for name in names:
            cloud_.add('compute1', name=name, seconds=6.0)
        cloud_.start()
        self.addCleanup(cloud_.stop)
        base.log_in(self.conf, cloud_.url)
        self.fill(cloud_)
        application = deploy.deploy(self.conf, self.database)
        self.away = False

        def guarded(environ, start_response):
            if self.away:
                start_response('503 Service Unavailable', [])
                return [b'']
            return application(environ, start_response)

        server = serve.make_server('127.0.0.1', 0, guarded)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        cloud_.catalog['dedup-migrate'] = (
            'http://127.0.0.1:%d/v1' % server.server_port)
        engine = service.Engine(
            self.conf, self.database, cloud.Cloud.from_conf(self.conf),
            'control', '1')
        engine.start()
        self.addCleanup(engine.stop)
        print(cloud_.url, flush=True)
        for line in sys.stdin:
            self.obey(line.strip(), cloud_)

    def obey(self, command, cloud_):
        self.away = {'api off': True, 'api on': False}.get(
            command, self.away)
        cloud_.token = {'reader': _READER, 'admin': controller.ADMIN}.get(
            command, cloud_.token)
        print('done', flush=True)

    def fill(self, cloud_):
        """Store what agents have reported."""
        with self.database.write() as session:
            for host in cloud_.hosts:
                hosts.put(session, host, {
                    'release': '1.0', 'patched': True,
                    'qemu_version': '10.0.13', 'reason': '',
                    'max_outbound': 2, 'link_rate': 1.25e8,
                    'waiting_reports': 0, 'guests': [
                        {'uuid': one.id, 'tracked': True, 'age': 1.0,
                         'memory': 1 << 29, 'in_use': 1 << 28,
                         'dirty_rate': 1e6, 'working_set': 1 << 24}
                        for one in cloud_.servers.values()
                        if one.host == host]})
            for number in range(3):
                made = samples.make(str(uuid.UUID(int=number + 1)))
                migrations.put(session, summary.of_report(made, 1),
                               codec.encode(made))
                migrations.note(
                    session, {'uuid': made.migration_uuid},
                    {'project_id': 'p',
                     'server_name': NAME if number else 'web-0'})


if __name__ == '__main__':
    result = World().run()
    for _, text in (*result.errors, *result.failures):
        print(text, file=sys.stderr)
    sys.exit(not result.wasSuccessful())
