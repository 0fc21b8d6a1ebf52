# SPDX-License-Identifier: Apache-2.0
import contextlib
import pathlib
import tempfile
import unittest
from unittest import mock

from debtool import check
from debtool import chroot
from debtool import host
from testkit import results


class System:
    """Records which scripts have a network; they write nothing."""

    def __init__(self):
        self.calls = []

    def run(self, what, script, network=False):
        self.calls.append((script, network))

    def read(self, what, script):
        return '1:1-1'


class EmulatorTest(unittest.TestCase):

    def test_what_was_not_built_is_in_the_table(self):
        top = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.object(check.build, 'RESULTS', top))
        table = results.Results('x')
        check.emulator(check.Checks(table), None)
        self.assertIn('not run', table.rows[0].value)
        self.assertEqual(0, table.status())

    def test_debians_packages_come_from_its_archive(self):
        system = System()
        top = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (top / 'trixie').mkdir()
        (top / 'trixie/qemu-utils_1-2_a.deb').touch()
        self.enterContext(mock.patch.object(check.build, 'RESULTS', top))
        self.enterContext(mock.patch.object(check.host, 'snapshot'))
        self.enterContext(mock.patch.object(check, '_offer'))
        self.enterContext(mock.patch.object(
            check, '_offered',
            return_value=contextlib.nullcontext(system)))
        check.emulator(mock.Mock(), None)
        ours, debians = system.calls
        self.assertNotIn('--allow-downgrades', ours[0])
        self.assertFalse(ours[1])
        self.assertIn(' qemu-utils/trixie', debians[0])
        self.assertTrue(debians[1])


class LeaveTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        top = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in ('usr', 'var/lib', 'var/log'):
            (top / name).mkdir(parents=True)
        self.system = chroot.System(top, None)
        self.before = host.snapshot(self.system)
        for path in check._DATA:
            self.system.path(path).parent.mkdir(parents=True, exist_ok=True)
            self.system.path(path).touch()

    def test_a_removal_keeps_data(self):
        self.assertEqual('done', check._removed(self.system, self.before))
        self.system.path(check._DATA[0]).unlink()
        self.assertRaisesRegex(host.CheckFailed, check._DATA[0],
                               check._removed, self.system, self.before)

    def test_a_removal_leaves_no_programs(self):
        self.system.path('usr/left').touch()
        self.assertRaisesRegex(host.CheckFailed, '[+]usr/left',
                               check._removed, self.system, self.before)


class LackingTest(unittest.TestCase):

    def test_a_file_that_no_package_has(self):
        listed = mock.Mock(stdout='-rw ./usr/lib/python3/dist-packages/a/b\n')
        with mock.patch.object(check.subprocess, 'run', return_value=listed):
            check._lacking(['x.deb'], ['a/b', 'a/tests/c'])
            self.assertRaisesRegex(host.CheckFailed, 'a/versions/d',
                                   check._lacking, ['x.deb'],
                                   ['a/b', 'a/versions/d'])
