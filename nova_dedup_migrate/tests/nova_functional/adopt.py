# SPDX-License-Identifier: Apache-2.0
"""Making test classes of Nova's that use our driver.

DEDUP_TEST_DRIVER=stock in the environment has them use Nova's own, for
the base line of a release: what fails with that as well is not ours.
DEDUP_TEST_SUITES=whole runs all of a suite of which some tests are chosen.
"""

import importlib
import inspect
import logging
import os
import sys
import sysconfig
import threading
import unittest
from unittest import mock
import warnings

import fixtures
import nova.conf
from sqlalchemy import exc

from nova_dedup_migrate.compute import driver
from nova_dedup_migrate.compute import shim

# Where this package is not installed; the lab tests that it can be.
sys.modules.setdefault('nova.virt.dedup_migrate', shim)

THEIRS = 'libvirt.LibvirtDriver'
OURS = 'dedup_migrate.' + driver.DedupMigrateLibvirtDriver.__name__
_WHOLE = os.environ.get('DEDUP_TEST_SUITES') == 'whole'
STOCK = os.environ.get('DEDUP_TEST_DRIVER') == 'stock'
_WAIT = threading.Event.wait


def _silence():
    """Remove what writes logs to the terminal.

    Services add it.  A thread that outlives its test would write into the
    middle of the results, which go the same way.
    """
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, logging.StreamHandler):
            root.removeHandler(handler)
    if not root.handlers:
        # or Python writes to the terminal itself
        root.addHandler(logging.NullHandler())


class WithOurDriver:
    """In front of one of Nova's test classes: the driver is ours.

    Nova's tests set the driver by its option, and so do we.
    """

    def setUp(self):
        # Nova's fixture puts back what it finds; and the last of all
        # cleanups.
        _silence()
        self.addCleanup(_silence)
        # Nova's tests expect a source tree around the package nova.
        self.flags(group='wsgi', api_paste_config=os.path.join(
            sysconfig.get_path('data'), 'etc/nova/api-paste.ini'))
        # By default it is the directory that nova was installed in, and
        # tests that run at once would share it.
        self.flags(state_path=self.useFixture(fixtures.TempDir()).path)
        # Nova's fixture of cells holds a lock for reading while it waits for
        # threads that want to read, too.  A writer that waits in between
        # must not keep these out, or all wait for ever.
        self.useFixture(fixtures.MonkeyPatch(
            'fasteners.ReaderWriterLock.has_pending_writers', False))
        # Which Nova's own driver does not call.
        self.useFixture(fixtures.MonkeyPatch(
            'nova.tests.fixtures.libvirt.Domain.state',
            lambda domain, flags=0: [domain._state, 0]))
        super().setUp()

    def flags(self, **kwargs):
        if kwargs.get('compute_driver') == THEIRS and not STOCK:
            kwargs['compute_driver'] = OURS
        super().flags(**kwargs)

    def _live_migrate(self, *args, **kwargs):
        """Migrate with waits that work.

        Around this call tests of Nova 32 replace the wait of all Events of
        the process: the first succeeds, as if a guest had detached a
        device, and the next raise StopIteration.  Python waits for an
        Event when a thread starts, and our driver starts one, so that
        Nova's wait came second.  As in Nova 34, it times out instead.
        """
        self.flags(device_detach_timeout=1, group='libvirt')
        with mock.patch('threading.Event.wait', _WAIT):
            return super()._live_migrate(*args, **kwargs)

    def start_service(self, name, *args, **kwargs):
        # They make these errors; the SQLAlchemy here may be newer than
        # what that release of Nova was tested with.  Nova's fixture takes
        # this filter away again.
        warnings.filterwarnings('ignore',
                                category=exc.SADeprecationWarning)
        service = super().start_service(name, *args, **kwargs)
        if name == 'compute':
            self.assertEqual(THEIRS if STOCK else OURS,
                             nova.conf.CONF.compute_driver)
            self.assertEqual(not STOCK, isinstance(
                service.driver, driver.DedupMigrateLibvirtDriver))
        return service


def adopt(module, *names):
    """Return {name: test class} of one of Nova's test modules.

    :param module: below nova.tests.functional
    :param names: of tests, if not all of the module's are wanted: those
        that have one of them in their name, the class's included
    """
    module = importlib.import_module('nova.tests.functional.' + module)
    if _WHOLE:
        names = ()
    adopted = {}
    for name, value in vars(module).items():
        if (not inspect.isclass(value)
                or value.__module__ != module.__name__):
            continue
        tests = unittest.defaultTestLoader.getTestCaseNames(value)
        left_out = [test for test in tests if names and not any(
            wanted in '%s.%s' % (name, test) for wanted in names)]
        if len(left_out) < len(tests):
            adopted[name] = type(
                name, (WithOurDriver, value),
                {'__module__': __name__, **dict.fromkeys(left_out)})
    return adopted
