# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from debtool import check
from debtool import chroot
from debtool import host


class SnapshotTest(unittest.TestCase):

    def test_what_differs_is_found(self):
        with tempfile.TemporaryDirectory() as name:
            top = pathlib.Path(name)
            system = chroot.System(top, None)
            for path in ('etc/a', 'etc/b', 'var/cache/apt/x', 'etc/d'):
                (top / path).parent.mkdir(parents=True, exist_ok=True)
                (top / path).write_text('one')
            before = host.snapshot(system)
            self.assertNotIn('var/cache/apt/x', before)
            (top / 'etc/a').write_text('two')
            (top / 'etc/b').unlink()
            (top / 'etc/c').symlink_to('a')
            (top / 'var/cache/apt/x').write_text('two')
            os.chmod(top / 'etc/d', 0o600)
            self.assertEqual(
                [('etc/a', '*'), ('etc/b', '-'), ('etc/c', '+'),
                 ('etc/d', '*')],
                host.differences(before, host.snapshot(system)))

    def test_few_changes_are_named(self):
        changes = [('p%d' % number, '+') for number in range(8)]
        self.assertEqual('+p0, +p1', host.short(changes[:2]))
        self.assertTrue(host.short(changes).endswith('and 2 more'))


class RotationTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.system = mock.Mock()
        self.read = 'considering log /var/log/a\n'
        self.system.read.side_effect = lambda what, script: (
            self.read if 'logrotate.conf' in script else
            'one two two 0 nova:adm')

    def _rotate(self):
        host.rotation(self.system, '/etc/logrotate.d/a', '/var/log/a',
                      'nova:adm')

    def test_all_files_are_read_together(self):
        self._rotate()
        making, reading = self.system.mock_calls[:2]
        # only a log that is there shows two files that name it
        self.assertIn('>/var/log/a;', making.args[1])
        self.assertIn('--debug /etc/logrotate.conf', reading.args[1])

    def test_a_log_that_no_file_names(self):
        self.read = 'considering log /var/log/b\n'
        self.assertRaisesRegex(host.CheckFailed, '/var/log/a', self._rotate)


class SudoersTest(unittest.TestCase):

    def test_only_the_rule_is_there_when_sudo_is_run(self):
        system = mock.Mock()
        system.read.side_effect = ['yes', 'yes']
        self.assertRaisesRegex(
            host.CheckFailed, 'sudo for nova of "two": yes', host.sudoers,
            system, '/etc/sudoers.d/a', 'nova', 'one', 'two')
        script = system.read.mock_calls[0].args[1]
        self.assertIn('mv /etc/sudoers.d /root', script)
        self.assertIn('cp -p /root/sudoers.d/a /etc/sudoers.d', script)


class NeededTest(unittest.TestCase):

    def test_names_are_those_of_others(self):
        self.assertEqual({'adduser', 'python3-x'}, check.needed(
            'Source: a\nBuild-Depends:\n debhelper,\n\n'
            'Package: b\nPre-Depends:\n ${misc:Pre-Depends},\nDepends:\n'
            ' adduser,\n python3-x (>= 1),\n c (= 1),\n ${misc:Depends},\n'
            'Recommends:\n nothing,\n\nPackage: c\nDepends:\n'
            ' python3-x,\n'))
