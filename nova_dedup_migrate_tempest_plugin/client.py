# SPDX-License-Identifier: Apache-2.0
"""The API of the controller, for tests."""

import json

from tempest.lib.common import rest_client


class ControllerClient(rest_client.RestClient):
    """Paths, bodies and answers are those of the controller's reference.

    Each method returns the answer's object, without the name around it, and
    raises tempest.lib.exceptions for other statuses.
    """

    def list_migrations(self, server):
        """Return the live migrations of a server, the newest first."""
        return self._get('migrations?server=%s' % server, 'migrations')

    def show_migration(self, uuid):
        return self._get('migrations/%s' % uuid, 'migration')

    def list_rounds(self, uuid):
        return self._get('migrations/%s/rounds' % uuid, 'rounds')

    def show_report(self, uuid):
        return self._get('migrations/%s/report' % uuid, 'report')

    def create_estimate(self, **wanted):
        """:param wanted: server_id or host"""
        return self._post('estimates', 'estimate', wanted)

    def list_estimates(self):
        return self._get('estimates', 'estimates')

    def show_estimate(self, uuid):
        return self._get('estimates/%s' % uuid, 'estimate')

    def list_drains(self):
        return self._get('drains', 'drains')

    def create_drain(self, **wanted):
        """:param wanted: host, dry_run, max_parallel and the like"""
        return self._post('drains', 'drain', wanted)

    def show_drain(self, uuid):
        return self._get('drains/%s' % uuid, 'drain')

    def list_drain_servers(self, uuid):
        return self._get('drains/%s/servers' % uuid, 'servers')

    def cancel_drain(self, uuid):
        """Cancel a drain; what migrates goes on to its end."""
        response, _ = self.post('v1/drains/%s/action' % uuid, json.dumps(
            {'cancel': {'in_flight': 'wait'}}))
        self.expected_success(202, response.status)

    def delete_drain(self, uuid):
        response, _ = self.delete('v1/drains/%s' % uuid)
        self.expected_success(204, response.status)

    def list_hosts(self):
        return self._get('hosts', 'hosts')

    def show_host(self, name):
        return self._get('hosts/%s' % name, 'host')

    def list_services(self):
        return self._get('services', 'services')

    def list_replicas(self):
        return self._get('replicas', 'replicas')

    def _get(self, path, name):
        response, body = self.get('v1/' + path)
        self.expected_success(200, response.status)
        return json.loads(body)[name]

    def _post(self, path, name, wanted):
        response, body = self.post('v1/' + path, json.dumps({name: wanted}))
        self.expected_success([200, 202], response.status)
        return json.loads(body)[name]
