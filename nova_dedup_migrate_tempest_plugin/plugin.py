# SPDX-License-Identifier: Apache-2.0
"""What Tempest loads; entry point tempest.test_plugins."""

import os

from tempest import config as tempest_config
from tempest.test_discover import plugins

from nova_dedup_migrate_tempest_plugin import config


class Plugin(plugins.TempestPlugin):

    def load_tests(self):
        package = os.path.dirname(os.path.abspath(__file__))
        return os.path.join(package, 'scenario'), os.path.dirname(package)

    def register_opts(self, conf):
        conf.register_opt(config.SERVICE_OPTION, group='service_available')
        conf.register_group(config.GROUP)
        conf.register_opts(config.OPTIONS, group=config.GROUP)

    def get_opt_lists(self):
        return [(config.GROUP.name, config.OPTIONS),
                ('service_available', [config.SERVICE_OPTION])]

    def get_service_clients(self):
        return [{'name': 'dedup_migrate',
                 'service_version': 'dedup_migrate.v1',
                 'module_path': 'nova_dedup_migrate_tempest_plugin.client',
                 'client_names': ['ControllerClient'],
                 **tempest_config.service_client_config('dedup_migrate')}]
