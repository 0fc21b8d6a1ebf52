# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import sys
from unittest import mock

from guests import errors
from guests.debian import base as debian
from guests.debian import client
from guests.debian import image
from nova_dedup_migrate.tests import base


class TestSources(base.TestCase):

    def test_of_the_release_and_of_debian_only(self):
        text = debian.sources(
            'one://a/debian/|bookworm|main|Debian\n'
            'one://a/debian/|bookworm|contrib|Debian\n'
            'one://a/debian/|bookworm-updates|main|Debian\n'
            'one://a/debian/|bookworm-backports|main|Debian\n'
            'one://a/debian/|trixie|main|Debian\n'
            'two://b/|bookworm|main|Somebody\n'
            'one://c/|bookworm-security|main|Debian\n'
            'one://c/|bookworm-security|main|Debian\n')
        self.assertEqual(
            ['one://a/debian/ bookworm main',
             'one://a/debian/ bookworm-updates main',
             'one://c/ bookworm-security main'],
            [line.split('] ')[1] for line in text.splitlines()])
        self.assertTrue(text.startswith('deb [signed-by=/usr/share/'))

    def test_without_package_lists_the_name_decides(self):
        self.assertIn('one://a/ bookworm main', debian.sources(
            'one://a/|bookworm|main|$(ORIGIN)'))

    def test_another_release_is_an_error(self):
        error = self.assertRaises(
            errors.BuildError, debian.sources,
            'one://a/|trixie|main|Debian\n'
            'one://c/|bookworm-security|main|Debian')
        self.assertIn('bookworm', str(error))


class TestFailures(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        patch = mock.patch.dict(os.environ, {
            'NOVA_DEDUP_MIGRATE_CACHE': str(self.directory)})
        patch.start()
        self.addCleanup(patch.stop)

    def test_the_first_complaint(self):
        self.assertEqual('E: no network', debian.complaint(
            'I: begun\nE: no network\nE: it failed\nI: done\n'))
        self.assertEqual('2026 FATAL:  no room', debian.complaint(
            'ok\n2026 FATAL:  no room\nLOG: bye\n'))
        self.assertEqual('bye', debian.complaint('hello\nbye\n\n'))
        self.assertEqual('', debian.complaint(''))

    def test_a_command_that_fails(self):
        error = self.assertRaises(
            errors.BuildError, debian.run_logged,
            ['sh', '-c', 'echo "E: tired" >&2; echo "$TMPDIR"; exit 3'],
            self.directory)
        self.assertIn('sh failed: E: tired, see', str(error))
        self.assertIn(str(self.directory),
                      (self.directory / 'debian-sh.log').read_text())

    def test_a_command_that_is_missing(self):
        error = self.assertRaises(
            errors.BuildError, debian.run_logged, ['no-such-tool'],
            self.directory)
        self.assertEqual('no-such-tool is not installed', str(error))

    @mock.patch.object(os, 'geteuid', autospec=True, return_value=1000)
    def test_only_root_can(self, _):
        self.assertRaises(errors.BuildError, image.build)
        # nothing that looks like an image is left
        self.assertEqual([], [path for path in self.directory.glob('debian/*')
                              if not path.name.startswith('.')])

    @mock.patch.object(sys, 'stderr')
    @mock.patch.object(image, 'build', autospec=True,
                       side_effect=errors.BuildError('out of disks'))
    def test_the_command_says_why(self, build, stderr):
        self.assertEqual(1, image.main())


class TestInputs(base.TestCase):

    def test_what_the_image_is_made_of_is_there(self):
        inputs = image._inputs()
        self.assertEqual([], [path for path in inputs
                              if not path.is_file()])
        names = {path.name for path in inputs}
        for name in ('orders.c', 'guest.h', 'lab', 'prepare', 'scan.c',
                     'page-cache-lister.service', 'pattern.h'):
            self.assertIn(name, names)

    def test_the_program_is_told_the_same(self):
        """Its files are those of the client, at the place they are made."""
        text = (pathlib.Path(client.__file__).parent
                / 'src/main.c').read_text()
        self.assertIn('.count = %d' % client.FILES, text)
        self.assertIn('.pages = %d' % (client.FILE_BYTES // 4096), text)
        self.assertIn('.seed = %d' % image.SEED, text)
