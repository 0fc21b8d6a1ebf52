# SPDX-License-Identifier: Apache-2.0
"""Emptying a host by the controller's API.

No other test may run meanwhile: its servers would be moved as well.
"""

from tempest.common import utils
from tempest.common import waiters
from tempest.lib import decorators

from nova_dedup_migrate_tempest_plugin.scenario import controller

#: States of a drain that has ended.
_ENDS = ('drained', 'partial', 'cancelled', 'failed', 'checked')


@decorators.serial
class DrainTest(controller.ControllerScenario):

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('d9a6e7f0-6b7f-4f35-9a55-4b0f4d1c2e01')
    @utils.services('compute', 'network')
    def test_drain(self):
        """The host is empty, its server runs elsewhere, then it is used."""
        server, guest = self.boot()
        source = self.get_host_for_server(server['id'])
        drain = self._drain(source)
        self.assertEqual('drained', drain['state'], drain)
        self.assertEqual(
            'disabled', self._service(source)['status'],
            'a host that was drained stays disabled')
        waiters.wait_for_server_status(self.servers_client, server['id'],
                                       'ACTIVE')
        self.assertNotEqual(source, self.get_host_for_server(server['id']))
        self.verify(guest)
        moved = {each['server_id']: each['state'] for each in
                 self.controller.list_drain_servers(drain['id'])}
        self.assertEqual('moved', moved[server['id']])
        self.assertEqual(
            drain['id'], self.reported(server)['drain_id'])

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('a3e0d7c4-1c8e-4d7b-8a26-6c2f5b3d4e02')
    @utils.services('compute', 'network')
    def test_dry_run(self):
        """It names the servers, and changes nothing."""
        server, _ = self.boot()
        source = self.get_host_for_server(server['id'])
        drain = self._drain(source, dry_run=True)
        self.assertEqual('checked', drain['state'], drain)
        self.assertIn(server['id'], [
            each['server_id'] for each in
            self.controller.list_drain_servers(drain['id'])])
        self.assertEqual('enabled', self._service(source)['status'])
        self.assertEqual(source, self.get_host_for_server(server['id']))

    @decorators.attr(type='negative')
    @decorators.idempotent_id('5e2c9b8a-7f41-4b0a-9d63-8a1e0c5f6e03')
    def test_unknown_host(self):
        drain = self._drain('no-such-host')
        self.assertEqual('failed', drain['state'], drain)
        self.assertIn('no-such-host', drain['reason'])

    def _drain(self, host, **wanted):
        """Drain a host; return the drain at its end."""
        made = self.controller.create_drain(host=host, **wanted)
        self.addCleanup(self._forget, made['id'], host)
        return self._wait(made['id'], (*_ENDS, 'blocked'))

    def _wait(self, drain, states):
        return self.wait_for('drain %s' % drain,
                             lambda: self.controller.show_drain(drain),
                             states)

    def _forget(self, drain, host):
        if self.controller.show_drain(drain)['state'] not in _ENDS:
            self.controller.cancel_drain(drain)
            self._wait(drain, _ENDS)
        self.controller.delete_drain(drain)
        service = self._service(host)
        if service is not None and service['status'] == 'disabled':
            self.admin_services.enable_service(host=host,
                                               binary='nova-compute')

    def _service(self, host):
        """Return Nova's service of a host, None if there is none."""
        return next(iter(self.admin_services.list_services(
            binary='nova-compute', host=host)['services']), None)
