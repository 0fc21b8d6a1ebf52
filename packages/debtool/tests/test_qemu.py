# SPDX-License-Identifier: Apache-2.0
import pathlib
import tempfile
import unittest

from buildtool import common
from debtool import qemu

RULES = """\
enable-system = $(if $(filter qemu-system,${BUILD_PACKAGES}),y)
\t\t${QEMU_CONFIGURE_OPTIONS} || \\
"""
CONTROL_MK = 'system-packages := arm x86 misc\n'
CONTROL = '\n'.join('Package: %s\nArchitecture: any\n' % name for name in (
    'qemu-system', *qemu.PACKAGES, 'qemu-user', 'qemu-system-data'))


class CommandTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.tree = pathlib.Path(directory.name)
        (self.tree / 'debian/patches').mkdir(parents=True)
        for name, text in (
                ('rules', RULES), ('control.mk', CONTROL_MK),
                ('control', CONTROL), ('changelog', 'qemu (1)\n'),
                ('patches/series', '# one\na.patch\n'),
                ('patches/a.patch', 'a\n')):
            (self.tree / 'debian' / name).write_text(text)

    def test_other_packages_are_left_out(self):
        self.assertEqual(['qemu-user', 'qemu-system-data'],
                         qemu.left_out(CONTROL))
        self.assertIn('DH_OPTIONS="-Nqemu-user -Nqemu-system-data"',
                      qemu.command(self.tree))

    def test_a_source_that_has_changed_is_an_error(self):
        for name, text, error in (
                ('rules', 'another\n', 'its rules has no'),
                ('control.mk', 'system-packages := arm\n',
                 'its control.mk has no'),
                ('control', CONTROL.replace('qemu-utils', 'qemu-tools'),
                 'no package qemu-utils')):
            with self.subTest(name):
                path = self.tree / 'debian' / name
                before = path.read_text()
                path.write_text(text)
                self.assertRaisesRegex(common.BuildError, error,
                                       qemu.command, self.tree)
                path.write_text(before)

    def test_cache_is_by_content(self):
        one = qemu.cached(self.tree)
        self.assertEqual(one, qemu.cached(self.tree))
        (self.tree / 'debian/patches/a.patch').write_text('b\n')
        self.assertNotEqual(one, qemu.cached(self.tree))
