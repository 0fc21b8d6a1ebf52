# SPDX-License-Identifier: Apache-2.0
import pathlib
import tempfile
import unittest
from unittest import mock

from debtool import chroot


class Log:
    """Records commands; the archive of a system is made by none."""

    def __init__(self):
        self.commands = []

    def run(self, what, command):
        self.commands.append([str(word) for word in command])
        command[-2].touch()  # mmdebstrap SUITE TARGET SOURCE


class ArchiveTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        self.log = Log()
        cache = self.enterContext(tempfile.TemporaryDirectory())
        for module, name, value in (
                (chroot.common, 'cache_root', pathlib.Path(cache)),
                (chroot.common, 'need_command', None),
                (chroot.common, 'need_space', None),
                (chroot.common, 'say', None),
                (chroot.debian, 'machine_archive', 'http://archive')):
            self.enterContext(mock.patch.object(module, name,
                                                return_value=value))

    def _archive(self, *include):
        return chroot._archive('suite', include, self.log, None, ())

    def test_a_system_is_made_once(self):
        one = self._archive('a')
        self.assertEqual(one, self._archive('a'))
        self.assertNotEqual(one, self._archive('b'))
        self.assertEqual(2, len(self.log.commands))

    def test_the_lists_of_packages_stay(self):
        self._archive('a')
        self.assertIn('--skip=cleanup/apt/lists', self.log.commands[0])

    def test_nothing_besides_apt_is_wanted(self):
        self._archive()
        self.assertFalse([word for word in self.log.commands[0]
                          if word.startswith('--include')])
