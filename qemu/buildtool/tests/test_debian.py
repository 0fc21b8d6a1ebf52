# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
import tempfile

import testtools

from buildtool import common
from buildtool import debian

BOOKWORM = """\
http://archive.test/debian-security/|Debian-Security|bookworm-security|Packages
http://archive.test/debian/|Debian|bookworm-updates|Packages
http://archive.test/debian/|Debian|bookworm|DEP-11
http://archive.test/debian/|Debian|bookworm|Packages
https://other.test/node/|NodeSource|nodistro|Packages
"""
NEVER_UPDATED = """\
http://archive.test/debian-security/|$(LABEL)|bookworm-security|Packages
http://archive.test/debian/|$(LABEL)|bookworm|Packages
"""
NOT_DEBIAN = 'http://archive.test/ubuntu/|Ubuntu|noble|Packages\n'


class TestArchiveUri(testtools.TestCase):

    def test_neither_security_nor_foreign(self):
        self.assertEqual('http://archive.test/debian/',
                         debian.archive_uri(BOOKWORM))

    def test_lists_never_read(self):
        self.assertEqual('http://archive.test/debian/',
                         debian.archive_uri(NEVER_UPDATED))

    def test_no_debian(self):
        error = self.assertRaises(
            common.BuildError, debian.archive_uri, NOT_DEBIAN)
        self.assertIn('--source-dir', str(error))

    def test_nothing_configured(self):
        self.assertRaises(common.BuildError, debian.archive_uri, '')


class TestVersion(testtools.TestCase):

    def test_upstream(self):
        for given, wanted in (
                ('1:10.0.13+ds-0+deb13u1', '10.0.13'),
                ('1:10.0.2+ds-2~bpo12+1', '10.0.2'),
                ('10.0.0~rc1-1', '10.0.0'),
                ('10.0.13', '10.0.13')):
            self.assertEqual(wanted, debian.upstream_version(given))

    def test_supported(self):
        for version in ('10.0', '10.0.0', '10.0.13'):
            self.assertIs(debian.DEFAULT, debian.series_of(version))
        self.assertEqual('10.2', debian.series_of('10.2.2').name)

    def test_unsupported(self):
        for version in ('7.2.0', '10.1.0', '10.00.1', '10', 'x', ''):
            error = self.assertRaises(
                common.BuildError, debian.series_of, version)
            self.assertIn('not supported', str(error))

    def test_newest_of_the_series(self):
        available = ['1:7.2+dfsg-7', '1:10.0.2+ds-2', '1:10.0.13+ds-1',
                     '1:10.0.9+ds-1', '1:10.1.0+ds-1', '1:10.2.2+ds-1',
                     '1:10.20.0+ds-1']
        self.assertEqual('1:10.0.13+ds-1', debian.choose_version(available))
        self.assertEqual('1:10.2.2+ds-1', debian.choose_version(
            available, series=debian.SERIES['10.2']))

    def test_none_of_the_series(self):
        self.assertIsNone(debian.choose_version(['1:10.1.0+ds-1']))
        self.assertIsNone(debian.choose_version([]))

    def test_wanted(self):
        available = ['1:10.0.2+ds-2', '1:10.0.13+ds-1']
        for wanted in ('10.0.2', '10.0.2+ds-2', '1:10.0.2+ds-2'):
            self.assertEqual(
                '1:10.0.2+ds-2', debian.choose_version(available, wanted))
        self.assertIsNone(debian.choose_version(available, '10.0.3'))


class TestFromFolder(testtools.TestCase):

    def setUp(self):
        super().setUp()
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = Path(scratch.name)

    def fill(self, version):
        (self.folder / 'VERSION').write_text(version + '\n')
        (self.folder / 'configure').write_text('#!/bin/sh\n')

    def test_accepted(self):
        self.fill('10.0.13')
        source = debian.from_folder(self.folder)
        self.assertEqual('10.0.13', source.version)

    def test_identity_follows_content(self):
        self.fill('10.0.13')
        one = debian.from_folder(self.folder).identity
        (self.folder / 'build').mkdir()
        (self.folder / 'build' / 'a.o').write_text('')
        self.assertEqual(one, debian.from_folder(self.folder).identity)
        (self.folder / 'ram.c').write_text('')
        self.assertNotEqual(one, debian.from_folder(self.folder).identity)

    def test_other_version(self):
        self.fill('9.2.0')
        self.assertRaises(
            common.BuildError, debian.from_folder, self.folder)

    def test_not_qemu(self):
        error = self.assertRaises(
            common.BuildError, debian.from_folder, self.folder)
        self.assertIn('VERSION', str(error))

    def test_no_such_folder(self):
        self.assertRaises(
            common.BuildError, debian.from_folder, self.folder / 'none')
