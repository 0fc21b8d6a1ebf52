# SPDX-License-Identifier: Apache-2.0
import pathlib
import re
import subprocess
import tempfile
import unittest

from buildtool import common
from debtool import source

RULES = '''\
enable-system = $(if $(filter qemu-system,${BUILD_PACKAGES}),y)
common_configure_opts = \\
\t--prefix=/usr
'''
CONTROL_MK = ('system-packages := arm x86 misc\n'
              'system-packages := $(filter-out a,${system-packages})\n')
CONTROL = '''\
# made of control-in
Source: qemu
Build-Depends: debhelper

Package: qemu-system-x86
Architecture: amd64

# another
Package: qemu-user
Architecture: amd64

Package: qemu-utils
Architecture: amd64
'''


class RestrictTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.tree = pathlib.Path(directory.name)
        self.debian = self.tree / 'debian'
        self.debian.mkdir()
        for name, text in (('rules', RULES), ('control.mk', CONTROL_MK),
                           ('control', CONTROL)):
            (self.debian / name).write_text(text)

    def test_only_our_packages_and_targets_are_left(self):
        source._restrict(self.tree)
        self.assertEqual(
            ['qemu-system-x86', 'qemu-utils'],
            re.findall('^Package: (.*)$',
                       (self.debian / 'control').read_text(), re.MULTILINE))
        self.assertEqual(CONTROL_MK.replace('arm x86 misc', 'x86'),
                         (self.debian / 'control.mk').read_text())
        self.assertEqual(
            'enable-system = '
            '$(if $(filter qemu-system-x86,${BUILD_PACKAGES}),y)\n'
            'QEMU_CONFIGURE_OPTIONS += '
            '--target-list=i386-softmmu,x86_64-softmmu\n\n'
            'common_configure_opts = \\\n\t--prefix=/usr\n',
            (self.debian / 'rules').read_text())

    def test_a_package_that_has_changed_is_an_error(self):
        (self.debian / 'rules').write_text('another\n')
        self.assertRaisesRegex(common.BuildError, 'rules .* has changed',
                               source._restrict, self.tree)


class VersionTest(unittest.TestCase):

    def test_changelog_is_one_that_dpkg_reads(self):
        with tempfile.NamedTemporaryFile('w') as file:
            file.write(source.changelog('a', '1.0~dev1-1', 'forky', 'Text.'))
            file.flush()
            done = subprocess.run(
                ['dpkg-parsechangelog', '-l', file.name], check=True,
                capture_output=True, text=True)
        self.assertEqual('', done.stderr)
        self.assertIn('Version: 1.0~dev1-1\n', done.stdout)
        self.assertIn('Maintainer: nova-dedup-migrate', done.stdout)

    def test_qemu_is_newer_than_the_same_and_older_than_the_next(self):
        for one, other in (
                ('1:10.0.13+ds-0+deb13u1', '1:10.0.13+ds-0+deb13u1+dedup1'),
                ('1:10.0.13+ds-0+deb13u1+dedup1', '1:10.0.13+ds-0+deb13u2'),
                ('0.1.0~dev9', '0.1.0'), ('0.1.0', '0.1.1~dev1')):
            subprocess.run(['dpkg', '--compare-versions', one, 'lt', other],
                           check=True)
