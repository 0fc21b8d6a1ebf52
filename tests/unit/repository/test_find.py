# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.tests import base
import tests


class FindTest(base.TestCase):
    def find(self, text):
        directory = self.temporary_dir()
        (directory / 'test_any.py').write_text(text)
        return tests.find((directory, directory))

    def test_tests_are_found(self):
        found = self.find('import unittest\n\n\n'
                          'class AnyTest(unittest.TestCase):\n'
                          '    def test_any(self):\n'
                          '        pass\n')
        self.assertEqual(1, found.countTestCases())

    def test_a_module_that_cannot_be_imported_is_an_error(self):
        error = self.assertRaises(ImportError, self.find,
                                  'raise TypeError("no argument")\n')
        self.assertIn('no argument', str(error))

    def test_a_module_that_skips_itself_is_none(self):
        found = self.find('import unittest\n\n'
                          'raise unittest.SkipTest("no tool")\n')
        self.assertEqual(1, found.countTestCases())
