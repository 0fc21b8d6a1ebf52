# SPDX-License-Identifier: Apache-2.0
"""All tests of the repository in one run of stestr.

Tests are beside what they test; the packages in here only find them.
"""

import pathlib
import unittest

TOP = pathlib.Path(__file__).resolve().parents[1]
#: Packages whose tests are run, those first that others are built on.
PACKAGES = ('nova_dedup_migrate', 'nova_dedup_migrate_dashboard',
            'nova_dedup_migrate_tempest_plugin', 'cinder_backup_assist',
            'testkit', 'guests', 'lab', 'benchmarks')


def find(*directories, pattern=None):
    """Return the tests of directories.

    :param directories: (directory, top), both relative to the repository;
        names of modules begin at top
    """
    suite = unittest.TestSuite()
    for directory, top in directories:
        # A loader keeps the first top that it is given.
        loader = unittest.TestLoader()
        suite.addTest(loader.discover(
            str(TOP / directory), pattern or 'test*.py', str(TOP / top)))
        # stestr leaves out what cannot be imported, and does not say so.
        if loader.errors:
            raise ImportError('\n'.join(loader.errors))
    return suite
