# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import unittest

from oslo_config import cfg

from nova_dedup_migrate_tempest_plugin import config
from nova_dedup_migrate_tempest_plugin import plugin

SCENARIO = pathlib.Path(plugin.__file__).parent / 'scenario'


class PluginTest(unittest.TestCase):

    def test_options_are_registered_and_listed(self):
        conf = cfg.ConfigOpts()
        plugin.Plugin().register_opts(conf)
        conf([])
        self.assertFalse(conf.service_available.dedup_migrate)
        self.assertEqual('', conf.dedup_migrate.host_without_agent)
        self.assertFalse(conf.dedup_migrate.controller)
        self.assertEqual(
            {'dedup_migrate': config.OPTIONS,
             'service_available': [config.SERVICE_OPTION]},
            dict(plugin.Plugin().get_opt_lists()))

    def test_tests_are_found(self):
        directory, top = plugin.Plugin().load_tests()
        self.assertEqual(SCENARIO, pathlib.Path(directory))
        self.assertEqual(SCENARIO.parents[1], pathlib.Path(top))

    def test_each_test_has_an_id_of_its_own(self):
        ids, tests = [], 0
        for path in SCENARIO.glob('test_*.py'):
            text = path.read_text()
            ids += re.findall(r"idempotent_id\('([0-9a-f-]{36})'\)", text)
            tests += len(re.findall(r'^    def test_', text, re.MULTILINE))
        self.assertEqual(tests, len(set(ids)))
        self.assertGreater(tests, 20)
