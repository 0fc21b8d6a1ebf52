# SPDX-License-Identifier: Apache-2.0
"""Challenges beside images."""

import os

from nova_dedup_migrate.identity import beside
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.tests import base


class BesideTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.temporary_dir()
        self.disk = self.folder / 'disk'
        self.disk.write_bytes(b'')
        self.device = self.disk.stat().st_dev

    def is_there(self, name, content, device=None):
        return beside.is_there(str(self.disk), (str(self.folder),),
                               device or self.device, name, content)

    def names(self):
        return sorted(os.listdir(self.folder))

    def test_made_and_removed(self):
        with beside.made(str(self.disk)) as (name, content):
            self.assertTrue(self.is_there(name, content))
            self.assertEqual(2, len(self.names()))
        self.assertEqual(['disk'], self.names())
        self.assertRaises(FileNotFoundError, self.is_there, name, content)

    def test_other_content(self):
        with beside.made(str(self.disk)) as (name, content):
            self.assertFalse(self.is_there(name, '0' * 64))
            path = self.folder / (beside.PREFIX + name)
            path.write_text(content + '0')
            self.assertFalse(self.is_there(name, content))

    def test_other_file_system(self):
        with beside.made(str(self.disk)) as (name, content):
            self.assertFalse(self.is_there(name, content, self.device + 1))

    def test_link(self):
        with beside.made(str(self.disk)) as (name, content):
            path = self.folder / (beside.PREFIX + name)
            path.rename(self.folder / 'real')
            path.symlink_to('real')
            self.assertRaises(paths.PathRefused, self.is_there, name,
                              content)

    def test_removed_by_somebody(self):
        with beside.made(str(self.disk)) as (name, _):
            (self.folder / (beside.PREFIX + name)).unlink()

    def test_litter(self):
        old = self.folder / (beside.PREFIX + 'a' * 64)
        young = self.folder / (beside.PREFIX + 'b' * 64)
        other = self.folder / 'old'
        for path in (old, young, other):
            path.write_bytes(b'')
        for path in (old, other):
            os.utime(path, (1, 1))
        with beside.made(str(self.disk)):
            self.assertFalse(old.exists())
            self.assertTrue(young.exists())
            self.assertTrue(other.exists())

    def test_no_directory(self):
        self.assertRaises(FileNotFoundError,
                          beside.made(str(self.folder / 'x/y')).__enter__)
