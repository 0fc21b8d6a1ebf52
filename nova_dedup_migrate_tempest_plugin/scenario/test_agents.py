# SPDX-License-Identifier: Apache-2.0
"""Live migrations to a host on which no agent runs."""

from tempest import config
from tempest.common import utils
from tempest.lib import decorators

from nova_dedup_migrate_tempest_plugin.scenario import controller

CONF = config.CONF


class AgentTest(controller.ControllerScenario):

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.dedup_migrate.host_without_agent:
            raise cls.skipException(
                '[dedup_migrate] host_without_agent is not set')

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('0b8ed0c4-9c0b-4d9e-a1d3-0a3dc7c4b206')
    @utils.services('compute', 'network')
    def test_without_agent(self):
        """It is an ordinary migration, and the report says why."""
        away = CONF.dedup_migrate.host_without_agent
        server, guest = self.boot()
        if self.get_host_for_server(server['id']) == away:
            self.migrate(server)
            self.reported(server)
        self.migrate(server, away)
        self.verify(guest)
        shown = self.reported(server)
        self.assertEqual(('completed', 0), (
            shown['state'], shown['bytes']['storage']))
        self.assertIn('agent', shown['fallback_reason'])
