# SPDX-License-Identifier: Apache-2.0
import re
import tempfile
import tomllib
import unittest

from nova_dedup_migrate_tempest_plugin import config
import tests
from tests import devstack


class DevstackTest(unittest.TestCase):

    def test_phases(self):
        reason = devstack.why_not()
        if reason:
            self.skipTest('no mount namespace can be made: %s' % reason)
        for case in devstack.CASES:
            with (self.subTest(case.name),
                  tempfile.TemporaryDirectory() as directory):
                self.assertIsNone(devstack.run(case, directory))

    def test_services_are_programs_of_the_package(self):
        scripts = tomllib.loads((tests.TOP / 'pyproject.toml').read_text()
                                )['project']['scripts']
        plugin = ''.join(
            path.read_text() for path in (tests.TOP / 'devstack').rglob('*')
            if path.is_file())
        used = set(re.findall(r'NOVA_BIN_DIR"?/([a-z-]+)', plugin))
        self.assertEqual({'privsep-helper'}, used - set(scripts))

    def test_packages_are_those_of_a_build(self):
        wanted = [line.split()[0] for line in
                  (tests.TOP / 'bindep.txt').read_text().splitlines()
                  if re.search(r'\[(qemu|full)\]$', line)
                  and not line.startswith('#')]
        self.assertEqual(
            wanted, (tests.TOP / 'devstack/files/debs/nova-dedup-migrate'
                     ).read_text().split())

    def test_variables_are_documented(self):
        settings = (tests.TOP / 'devstack' / 'settings').read_text()
        readme = (tests.TOP / 'devstack' / 'README.rst').read_text()
        variables = set(re.findall(r'^ *(DEDUP_\w+)=', settings,
                                   re.MULTILINE))
        self.assertEqual(set(re.findall(r'^``(DEDUP_\w+)``$', readme,
                                        re.MULTILINE)), variables)

    def test_options_of_tempest_exist(self):
        plugin = (tests.TOP / 'devstack' / 'plugin.sh').read_text()
        used = re.findall(r'TEMPEST_CONFIG" dedup_migrate (\w+)', plugin)
        self.assertEqual({'controller', 'shared_volumes'}, set(used))
        self.assertLess(set(used),
                        {option.name for option in config.OPTIONS})

    def test_samples_with_tempest_have_our_tests(self):
        for path in (tests.TOP / 'devstack' / 'samples').iterdir():
            text = path.read_text()
            self.assertEqual('enable_service tempest' in text,
                             'TEMPEST_PLUGINS=' in text, path.name)
