# SPDX-License-Identifier: Apache-2.0
"""No fault can be injected into the QEMU that is installed."""

import pathlib
import re

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base
from testkit import direct
from testkit import qemus
from testkit import spec

_TOP = pathlib.Path(__file__).parents[4]
_SOURCE = _TOP / 'qemu/src/migration/dedup/inject.c'
_VARIABLE = 'QEMU_DEDUP_INJECT'


def _names():
    """What the source reads from the environment, its variable first."""
    faults = re.findall(r'{ "([a-z-]+)", [&.]', _SOURCE.read_text())
    # QEMU has an option cache.no-flush, and "window" in many places
    return [_VARIABLE, *(name for name in faults
                         if '-' in name and name != 'no-flush')]


class FaultsTest(base.TestCase):

    timeout = 60

    def left_out(self, kind):
        """Return those names that are not in the program of a flavour."""
        content = pathlib.Path(qemus.require(self, kind)).read_bytes()
        return [name for name in _names() if name.encode() not in content]

    def test_none_in_what_is_installed(self):
        names = _names()
        self.assertGreater(len(names), 20)
        self.assertEqual(names, self.left_out('patched'))

    def test_all_in_what_tests_run(self):
        """Or the test above would see nothing in any program."""
        self.assertEqual([], self.left_out('faulty'))

    def start(self, kind):
        guest = direct.DirectGuest(
            spec.GuestSpec(binary=qemus.require(self, kind), accel='tcg',
                           env={_VARIABLE: 'no-such-fault'}),
            self.temporary_dir())
        self.addCleanup(guest.destroy)
        guest.start(paused=True)

    def test_variable_means_nothing_to_what_is_installed(self):
        self.start('patched')

    def test_variable_is_read_by_what_tests_run(self):
        error = self.assertRaises(errors.GuestExited, self.start, 'faulty')
        self.assertIn('no-such-fault', str(error))
