# SPDX-License-Identifier: Apache-2.0
import ast
import importlib.util
import pathlib
import re
import unittest

from lab import settings
from lab import tempest_tests


def tests_of(package):
    """Yield the names of the tests in the files of a package."""
    top = pathlib.Path(package)
    for path in sorted(top.rglob('test_*.py')):
        module = '.'.join(path.relative_to(top.parent).with_suffix('').parts)
        for one in ast.parse(path.read_text()).body:
            if isinstance(one, ast.ClassDef):
                for function in one.body:
                    if getattr(function, 'name', '').startswith('test_'):
                        yield '%s.%s.%s' % (module, one.name, function.name)


class TempestTestsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        found = importlib.util.find_spec('tempest')
        if found is None:
            raise unittest.SkipTest('Tempest is not installed')
        cls.tempests = list(tests_of(found.submodule_search_locations[0]))
        cls.ours = list(tests_of(
            settings.TOP / 'nova_dedup_migrate_tempest_plugin'))

    def test_each_test_is_in_one_group(self):
        for name, group in (
                ('tempest.api.volume.test_volumes_get.A.test_b', 'volume'),
                ('tempest.api.compute.volumes.test_c.A.test_b', 'servers'),
                ('tempest.api.compute.admin.test_live_migration_negative.A'
                 '.test_b', 'live-migration'),
                ('nova_dedup_migrate_tempest_plugin.scenario.test_drains.A'
                 '.test_b', 'plugin'),
                ('nova_dedup_migrate_tempest_plugin.scenario.test_agents.A'
                 '.test_b', 'without-agent')):
            self.assertEqual([group], [
                group for group, tests in tempest_tests.GROUPS.items()
                if any(re.search(test, name) for test in tests)])
            self.assertEqual(group, tempest_tests.group_of(name))
        self.assertIsNone(tempest_tests.group_of('tempest.api.identity.x'))

    def test_expressions_of_groups_match(self):
        for tests in (*tempest_tests.GROUPS.values(),
                      *tempest_tests.QUICK.values()):
            for test in tests:
                self.assertTrue(any(re.search(test, name) for name in
                                    self.tempests + self.ours), test)

    def test_the_quick_form_is_a_few_tests_of_the_groups(self):
        for group, tests in tempest_tests.QUICK.items():
            found = [name for name in self.tempests + self.ours
                     if any(re.search(test, name) for test in tests)]
            self.assertLess(len(found), 4)
            self.assertEqual({group}, {
                tempest_tests.group_of(name) for name in found})

    def test_what_is_left_out_is_there_and_has_a_reason(self):
        found = tempest_tests.skip_list()
        self.assertGreater(len(found), 10)
        for expression, reason in found:
            matched = [name for name in self.tempests
                       if re.search(expression, name)
                       and tempest_tests.group_of(name)]
            self.assertTrue(matched, expression)
            self.assertGreater(len(reason), 10, expression)
            self.assertFalse([name for name in self.ours
                              if re.search(expression, name)], expression)
