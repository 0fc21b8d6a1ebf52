# SPDX-License-Identifier: Apache-2.0
"""An engine beside an emulated OpenStack."""

import time

from keystoneauth1 import loading
import sqlalchemy as sa

from nova_dedup_migrate.db import drains
from nova_dedup_migrate.db import models
from nova_dedup_migrate.engine import cloud
from nova_dedup_migrate.engine import service
from nova_dedup_migrate.tests import controller
from testkit import openstack

ID = '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11'
OPTIONS = {'engine_interval': 0.1, 'engine_recheck_interval': 0.5,
           'engine_retry_delay': 0.1, 'engine_submit_grace': 1.0,
           'engine_lease_time': 20.0, 'engine_metrics_listen': ''}


def log_in(conf, url):
    """Set the options of [openstack] to those of an emulated one."""
    conf.set_override('auth_type', 'password', 'openstack')
    conf.register_opts(loading.get_auth_plugin_conf_options('password'),
                       'openstack')
    for name, value in (('auth_url', url + '/v3'), ('username', 'dedup'),
                        ('password', 'x'), ('project_name', 'service'),
                        ('user_domain_id', 'default'),
                        ('project_domain_id', 'default')):
        conf.set_override(name, value, 'openstack')
    conf.set_override('region_name', 'RegionOne', 'openstack')


class EngineTestCase(controller.ApiTestCase):
    """Has openstack and can start engines in this process."""

    options = OPTIONS

    def setUp(self):
        super().setUp()
        self.openstack = openstack.OpenStack()
        self.openstack.start()
        self.addCleanup(self.openstack.stop)
        log_in(self.conf, self.openstack.url)

    def start(self):
        """Return an Engine that works."""
        engine = service.Engine(
            self.conf, self.database, cloud.Cloud.from_conf(self.conf),
            'control', '1')
        engine.start()
        self.addCleanup(engine.stop)
        return engine

    def drain(self, **fields):
        """Request a drain of compute1."""
        return self.call('POST', '/v1/drains', {'drain': {
            'id': ID, 'host': 'compute1', **fields}}, status=202)

    def act(self, body):
        return self.call('POST', '/v1/drains/%s/action' % ID, body,
                         status=202)

    def show(self):
        return self.call('GET', '/v1/drains/' + ID, status=200).json[
            'drain']

    def rows(self):
        """Return the servers of the drain by ID."""
        return {one['server_id']: one for one in self.call(
            'GET', '/v1/drains/%s/servers' % ID,
            status=200).json['servers']}

    def wait(self, *states, timeout=40.0):
        """Return the drain when it has one of these states."""
        end = time.monotonic() + timeout
        while True:
            found = self.show()
            if found['state'] in states:
                return found
            ended = (found['state'] in drains.FINAL
                     and found['requested'] != drains.RETRY)
            if ended or time.monotonic() > end:
                self.fail('drain is %s (%s), not %s: %s' % (
                    found['state'], found['reason'], states,
                    [(one['state'], one['reason'])
                     for one in self.rows().values()]))
            time.sleep(0.1)

    def expire_leases(self):
        with self.database.write() as session:
            session.execute(sa.update(models.leases).values(
                expires_at=1.0))
