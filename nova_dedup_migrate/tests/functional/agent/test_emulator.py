# SPDX-License-Identifier: Apache-2.0
"""Asking real QEMUs, and what is none."""

from unittest import mock

from nova_dedup_migrate.agent import emulator
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base
from testkit import qemus


class EmulatorTest(base.TestCase):
    def test_patched(self):
        found = emulator.ask(str(qemus.require(self, 'patched')))
        self.assertTrue(found.patched)
        self.assertRegex(found.version, r'^\d+\.\d+\.\d+$')

    def test_stock(self):
        found = emulator.ask(str(qemus.require(self, 'stock')))
        self.assertFalse(found.patched)
        self.assertIn(found.version, found.reason)

    def script(self, text):
        path = self.temporary_dir() / 'qemu'
        path.write_text('#!/bin/sh\n' + text)
        path.chmod(0o755)
        return str(path)

    def test_it_ends(self):
        error = self.assertRaises(errors.GuestExited, emulator.ask,
                                  self.script('echo no KVM >&2; exit 3\n'))
        self.assertIn('no KVM', str(error))

    def test_it_hangs(self):
        with mock.patch.object(emulator, 'TIMEOUT', 0.2):
            self.assertRaises(errors.QmpTimeout, emulator.ask,
                              self.script('exec sleep 60\n'))
