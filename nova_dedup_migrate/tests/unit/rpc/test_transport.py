# SPDX-License-Identifier: Apache-2.0
from oslo_config import cfg

from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import transport
from nova_dedup_migrate.tests import base


class TransportTest(base.TestCase):

    def test_any_configuration(self):
        """Commands do not have oslo.config's global one."""
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[])
        # It registers the option.
        transport.get_transport(conf)
        conf.set_override('transport_url', 'fake://')
        agents = api.AgentAPI(transport.get_transport(conf), 1.0)
        error = self.assertRaises(errors.AgentUnavailable, agents.hello, {},
                                  'there')
        self.assertIn('no answer', str(error))
