# SPDX-License-Identifier: Apache-2.0
import subprocess
import tempfile
import unittest

from debtool import source


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
