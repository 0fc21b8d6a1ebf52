# SPDX-License-Identifier: Apache-2.0
import hashlib
import pathlib
import subprocess
import tempfile
import unittest

from debtool import repository


class RepositoryTest(unittest.TestCase):

    def test_index_names_each_package(self):
        with tempfile.TemporaryDirectory() as name:
            top = pathlib.Path(name)
            (top / 'root/DEBIAN').mkdir(parents=True)
            (top / 'root/DEBIAN/control').write_text(
                'Package: a\nVersion: 1\nArchitecture: all\n'
                'Maintainer: a <a@example.org>\nDescription: a\n')
            subprocess.run(['dpkg-deb', '--root-owner-group', '-b',
                            top / 'root', top / 'a_1_all.deb'], check=True,
                           capture_output=True)
            (top / 'repo').mkdir()
            (top / 'repo/old.deb').touch()
            repository.make(top / 'repo', [top / 'a_1_all.deb'])
            self.assertEqual(
                {'a_1_all.deb', 'Packages', 'Packages.gz', 'Release'},
                {path.name for path in (top / 'repo').iterdir()})
            index = (top / 'repo/Packages').read_bytes()
            self.assertIn(b'Package: a\n', index)
            self.assertIn(b'Filename: ./a_1_all.deb\n', index)
            self.assertIn(hashlib.sha256(index).hexdigest(),
                          (top / 'repo/Release').read_text())
