# SPDX-License-Identifier: Apache-2.0
"""Making Cinder's tests of its backup drivers use ours.

ASSIST_TEST_DRIVER=stock in the environment has them use Cinder's own, for
the base line of a release: what fails with that as well is not ours.
"""

import importlib
import inspect
import logging
import os
import unittest
from unittest import mock

STOCK = os.environ.get('ASSIST_TEST_DRIVER') == 'stock'


class _WithOurDriver:
    """In front of one of Cinder's test classes."""

    def setUp(self):
        if not STOCK:
            theirs = importlib.import_module(self.THEIRS)
            ours = importlib.import_module(self.OURS)
            patcher = mock.patch.object(
                theirs, self.NAME, getattr(ours, 'Held' + self.NAME))
            patcher.start()
            self.addCleanup(patcher.stop)
        super().setUp()
        # Its log would be written into the middle of the results.
        logging.getLogger().setLevel(logging.CRITICAL)


def adopt(driver, name, without=()):
    """Return {name: test class} of Cinder's tests of a driver.

    :param driver: module of the driver, such as 'posix'
    :param name: its class
    :param without: tests that fail with Cinder's own driver, too
    """
    module = importlib.import_module(
        'cinder.tests.unit.backup.drivers.test_backup_' + driver)
    adopted = {}
    for one, value in vars(module).items():
        if (inspect.isclass(value) and issubclass(value, unittest.TestCase)
                and value.__module__ == module.__name__):
            adopted[one] = type(one, (_WithOurDriver, value), {
                '__module__': __name__, 'NAME': name,
                'THEIRS': 'cinder.backup.drivers.' + driver,
                'OURS': 'cinder_backup_assist.driver.' + driver,
                **{test: None for test in without if hasattr(value, test)}})
    return adopted
