# SPDX-License-Identifier: Apache-2.0
"""Which QEMUs are asked, and what their answers mean."""

import os
from unittest import mock

from nova_dedup_migrate.agent import emulator
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base

VERSION = {'qemu': {'major': 10, 'minor': 0, 'micro': 3}, 'package': ''}
PATCHED = [{'name': 'quit'}, {'name': 'x-dedup-arm'}]
STOCK = [{'name': 'quit'}]


class EmulatorsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.temporary_dir()
        self.qemu = self.folder / 'qemu'
        self.qemu.write_text('')
        self.offered = [str(self.qemu)]
        patcher = mock.patch.object(
            emulator, 'ask', autospec=True,
            return_value=emulator.Emulator(True, '10.0.3'))
        self.ask = patcher.start()
        self.addCleanup(patcher.stop)
        self.emulators = emulator.Emulators(lambda: self.offered)

    def refused(self, path, match):
        found = self.emulators.describe(path)
        self.assertFalse(found.patched)
        self.assertRegex(found.reason, match)

    def test_default(self):
        self.assertTrue(self.emulators.describe().patched)
        self.ask.assert_called_once_with(str(self.qemu))

    def test_asked_once(self):
        self.emulators.describe()
        self.emulators.describe(str(self.qemu))
        self.ask.assert_called_once_with(str(self.qemu))

    def test_asked_again_when_it_was_replaced(self):
        self.emulators.describe()
        os.utime(self.qemu, (1, 1))
        self.emulators.describe()
        self.assertEqual(2, self.ask.call_count)

    def test_only_what_libvirt_offers_is_started(self):
        other = self.folder / 'other'
        other.write_text('')
        for path in (str(other), '/bin/sh', '', str(self.folder / 'none')):
            self.refused(path, 'does not offer')
        self.ask.assert_not_called()

    def test_other_name_of_the_same(self):
        link = self.folder / 'link'
        link.symlink_to(self.qemu)
        self.assertTrue(self.emulators.describe(str(link)).patched)

    def test_libvirt_offers_nothing(self):
        self.offered = []
        self.refused(None, 'does not offer')

    def test_no_libvirt(self):
        def fail():
            raise errors.HypervisorError()

        self.emulators = emulator.Emulators(fail)
        self.refused(None, 'libvirt does not answer')

    def test_failure_is_not_remembered(self):
        self.ask.side_effect = errors.QmpTimeout(command='x', seconds=1)
        self.refused(None, 'did not answer')
        self.ask.side_effect = None
        self.assertTrue(self.emulators.describe().patched)

    def test_removed(self):
        self.qemu.unlink()
        self.refused(None, 'No such file')

    def test_bounded(self):
        with mock.patch.object(emulator, 'MAX_KNOWN', 2):
            for when in range(5):
                os.utime(self.qemu, (when, when))
                self.emulators.describe()
        self.assertEqual(2, len(self.emulators._known))


class DecodeTest(base.TestCase):
    def test_patched(self):
        self.assertEqual(emulator.Emulator(True, '10.0.3'),
                         emulator.decode_answers(VERSION, PATCHED))

    def test_stock(self):
        found = emulator.decode_answers(VERSION, STOCK)
        self.assertFalse(found.patched)
        self.assertEqual('10.0.3', found.version)
        self.assertIn('stock', found.reason)

    def test_malformed(self):
        for version, commands in (
                ({}, STOCK), ([], STOCK), ({'qemu': {'major': 1}}, STOCK),
                (VERSION, {}), (VERSION, [7]),
                ({'qemu': {'major': 'x', 'minor': 1, 'micro': 1}}, STOCK)):
            self.assertRaises(errors.MalformedReply,
                              emulator.decode_answers, version, commands)
